"""What several encodings share.

additive_bias.py, kerple.py         a bias added to the scores
attention_scores.py                 encodings that compute with the scores themselves
learned_table.py, digit_places.py   vectors added to token embeddings, by index or place of a digit
randomized.py                       randomized positions
rotary.py                           rotations of queries and keys
contextual.py, tape_layers.py       TAPE: the state between layers, and its blocks
"""
