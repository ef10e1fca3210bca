"""Parts that several tasks share. Never imports torch.

tokens.py        ids of tokens, the vocabulary of a task
random_words.py  random words by key and index
numbers.py       numbers of any length as arrays of digits: drawn, added, multiplied, sorted
carries.py       how far carries run, and numbers in which they run far
writing.py       formats: how numbers and problems become tokens
two_operands.py  tasks `a OP b`
strings.py       tasks on one string of digits
lists.py         tasks on a list of numbers
"""
