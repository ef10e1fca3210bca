"""Attention in Triton: packed sequences, one softmax for up to three values, a shared bias.

multi_value.py      the operators for torch, which choose a kernel and its tiles
short.py, long.py   kernels for sequences that fit one tile, and for longer ones
bias_gradient.py    the kernel of a bias's gradient, for both
tiles.py            building blocks of all kernels, and the import of Triton

Symbols: T tokens of all sequences, n sequences, H heads, K head dim, V value width, N values; S
tokens of a tile that holds a sequence, else R queries and C keys; K2 and V2 are K and V rounded up
to a power of two. `*_t` and `*_h` are the strides of tokens and heads. bias [H, side, side] is
added to the scores of a query and a key by their places in their sequence; it may be None.
"""

WIDEST = 128
"""The largest head dim or value width, which one tile holds. Importing this imports no Triton."""
