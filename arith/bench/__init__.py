"""Compare measured speed with this machine's limits and with peers: `tape-arith bench`.

limits      FLOP/s, bytes/s and digits/s that this machine reaches
generate    the command that generates problems, compared with its limit
train       steps of encodings in turn, compared with rope and the rate of products
score       scoring by one pass, compared with decoding token by token
attention   each backend of attention, compared with plain products
peers       training, compared with transformers and x-transformers
measure     a result, the options, interleaved timing;  run: running stages, table, JSON
"""

STAGES = ("limits", "generate", "train", "score", "attention", "peers")
"""In running order: later stages are compared with the limits."""
ALL = "all"
