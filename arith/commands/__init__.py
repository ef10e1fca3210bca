"""The commands of `tape-arith`, one file each, which parse, call and print.

option.py declares the options that several commands share, job_options.py handles them.
"""
