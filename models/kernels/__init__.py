"""Attention in Triton: packed sequences, one softmax for up to three values, a shared bias.

multi_value.py      the operators for torch, which choose a kernel and its tiles
short.py, long.py   kernels for sequences that fit one tile, and for longer ones
bias_gradient.py    the kernel of a bias's gradient, for both
tiles.py            building blocks of all kernels, and the import of Triton
"""

WIDEST = 128
"""The largest head dim or value width, which one tile holds. Importing this imports no Triton."""
