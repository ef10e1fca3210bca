"""Bases that several encodings share. For the symbols see models/encodings/__init__.py.

scores.py                 a bias added to the scores; the scores themselves
learned_table.py          vectors added to token embeddings, by index or place of digit
randomized.py             randomized positions
rotary.py, contextual.py  rotations of queries and keys, fixed or rewritten by layers
"""
