"""The commands of `tape-arith`, one per file, which parse, call and print.

option.py declares the options that several commands share; job_options.py handles them.
"""
