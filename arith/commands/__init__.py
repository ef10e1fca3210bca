"""The commands of `tape-arith`, one per file: each parses, calls the library and prints.

option.py declares the options that several commands share and reads their values, table_output.py
those of tables. jobs.py shows, stops and ends the work of a command.
"""
