"""What a problem is; README.md says how to add a task. Never imports torch.

task.py          the interface, and the registry of this folder and of entry points
vocabulary.py    tokens
addition.py      the sum of two numbers, least significant digit first
random_bits.py   random words as a function of key and index
carry_chains.py  operands with long carry chains, and the chains of a problem
"""
