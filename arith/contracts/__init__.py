"""Check what encodings and tasks promise: `tape-arith check`.

encoding.py  what every positional encoding promises     promises.py  run checks, report outcomes
task.py      what every task promises
"""
