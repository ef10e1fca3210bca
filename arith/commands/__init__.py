"""One file a command of `tape-arith`: parse, call, print.

options.py holds options that several commands share, job_options.py what they do with them.
"""
