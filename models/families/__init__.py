"""Bases that several encodings share. For the symbols see models/encodings/__init__.py.

scores.py                 biases added to the scores; changed scores
learned_table.py          vectors added to token embeddings, by index or digit's place
randomized.py             randomized positions
rotary.py, contextual.py  rotations of queries and keys, fixed or rewritten by each layer
"""
