"""Measured speed beside this machine's limits and beside peers: `tape-arith bench`.

limits      FLOP/s, bytes/s and digits/s that this machine reaches
generate    the command that generates problems, beside its limit and a plain loop
train       steps of encodings, in turn, beside the rate of products
score       scoring by one pass beside decoding token by token
attention   each backend of attention beside plain products
peers       training beside transformers and x-transformers
measure     a result, the options, interleaved timing;  run: running stages, table, JSON
"""

STAGES = ("limits", "generate", "train", "score", "attention", "peers")
"""In running order: later stages are compared with the limits."""
ALL = "all"
