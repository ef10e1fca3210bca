"""The commands of `tape-arith`, one per file: each parses, calls the library and prints.

option.py declares the options that several commands share; job_options.py and table_output.py turn
them into values. jobs.py shows, stops and ends the work of a command.
"""
