"""Encodings as a reader of the papers would write them down, in float64.

Oracles for the fast code in `models`, written from the formulas, never from that code: one
sequence at a time, one score at a time, no masks, no cached angles.

decoder.py  the decoder, what an oracle knows of a row, and NoPE as the base of every oracle
biases.py, content.py, rotary.py, tables.py  the encodings
"""
