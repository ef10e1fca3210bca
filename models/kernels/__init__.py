"""Attention in Triton: packed sequences, one softmax for up to three values.

multi_value.py      the operators for torch: which kernel runs, with which tiles
short.py, long.py   kernels for sequences that fit one tile, and for longer ones
tiles.py            building blocks of both, and Triton itself
"""

WIDEST = 128
"""The largest head dim or value width: one tile holds it. Importing it does not import Triton."""
