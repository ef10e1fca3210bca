"""Tasks and their problems; README.md says how to add one. Never imports torch.

task.py         the interface, and the registry of this folder and of entry points
vocabulary.py   tokens
random_bits.py  random words that are a pure function of a key and an index
addition.py     the sum of two numbers, least significant digit first, and its carry chains
"""
