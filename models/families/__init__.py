"""Base classes that several encodings share; models/encodings/__init__.py lists the symbols.

scores.py                 biases added to the scores; changed scores
learned_table.py          vectors added to token embeddings, by index or digit's place
randomized.py             randomized positions
rotary.py, contextual.py  rotations of queries and keys, fixed or updated by each layer
"""
