"""Tasks and their problems; README.md says how to add one. Never imports torch.

task.py      the interface, the registry of tasks, tokens, random words by key and index
addition.py  the sum of two numbers, least significant digit first, and its carry chains
"""
