"""Each file is one encoding, named as on the command line; README.md lists all encodings.

Symbols: B batch, T tokens, D hidden, H heads, K head dim, F = K/2 frequencies; query t, key i; L0
and L1 the longest trained and tested sequences, in tokens. Unless a docstring says otherwise, each
layer has its own parameters, training and test are alike, and sequences may be longer than L0.
"""
