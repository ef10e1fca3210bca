"""Code that several tasks share.

tokens.py        ids of tokens; the vocabulary of a task
random_words.py  random words by key and index
numbers.py       numbers of any length as arrays of digits: drawn, added, multiplied, sorted
carries.py       lengths of carry chains, and numbers with long chains
writing.py       formats: how numbers and problems become tokens
two_operands.py  tasks `a OP b`
strings.py       tasks on one string of digits
lists.py         tasks on a list of numbers
"""
