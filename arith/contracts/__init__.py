"""Check what encodings and tasks promise: `tape-arith check`.

encoding.py   what every positional encoding promises; examples.py: a small decoder, its inputs
interface.py  how its classes fit the decoder; hooks.py: what hooks return
examine.py    runs all checks on an encoding
task.py       what every task promises
promises.py   runs a check, reports outcomes
"""
