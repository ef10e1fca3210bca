"""Encodings as a reader of the papers would write them down: loops in float64.

Oracles for the fast code in `models`, written from the formulas, never from that code: one
sequence at a time, one score at a time, no masks, no batches, no cached angles.

decoder.py  the decoder, and NoPE as the base of every oracle
biases.py   relative biases
rotary.py   rotations, TAPE among them, and what extrapolations make of frequencies
content.py  encodings that look at the content
tables.py   what is added to token embeddings
"""
