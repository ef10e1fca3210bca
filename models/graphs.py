"""How many graphs torch may compile of one function."""

import torch

MOST_GRAPHS = 32
"""Of one decoder: blocks share their graphs, the first, the last and those between, in training and
in scoring, for new shapes once more. torch's own limit, 8, is less, and past it a function runs
uncompiled without a word."""


def allow_graphs(decoders: int = 1) -> None:
    """Let so many decoders be compiled beside each other, from here on in this process; what was
    allowed before is never taken back."""
    config = torch._dynamo.config
    what = "recompile" if hasattr(config, "recompile_limit") else "cache_size"  # its older name
    for limit in (f"{what}_limit", f"accumulated_{what}_limit"):
        setattr(config, limit, max(MOST_GRAPHS * decoders, getattr(config, limit)))
