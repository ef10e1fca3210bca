"""The commands of `tape-arith`, one per file: each parses, calls the library and prints.

option.py declares the options that several commands share; table_output.py and jobs.py turn them
into values. jobs.py also shows, stops and ends the work of a command.
"""
