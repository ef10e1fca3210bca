"""How many graphs torch may compile of one function, what they depend on, and how often all of
them were dropped."""

import torch

MOST_GRAPHS = 32
"""Of one decoder whose blocks share their graphs: the first, the last and those between, in
training and in scoring, for new shapes once more. torch's own limit, 8, is less, and past it a
function runs uncompiled without a word."""

forgotten = 0
"""How often all graphs have been forgotten."""


def allow_graphs(decoders: int = 1, blocks: int = 1) -> None:
    """Let so many decoders be compiled beside each other, of so many blocks that share no graph,
    from here on (since torch 2.12: in this context and its copies, as `Hardware.map` hands them to
    threads); what was allowed before is never taken back."""
    config = torch._dynamo.config
    what = "recompile" if hasattr(config, "recompile_limit") else "cache_size"  # its older name
    for limit in (f"{what}_limit", f"accumulated_{what}_limit"):
        most = MOST_GRAPHS * decoders * blocks
        setattr(config, limit, max(most, getattr(config, limit)))


def forget_graphs() -> None:
    """Forget all that was compiled in this process."""
    global forgotten
    torch.compiler.reset()
    forgotten += 1


def fix_numbers() -> None:
    """Take the floats of a module for what they are, from here on, as above. Where all shapes
    vary, torch takes them for arguments until an operation wants a number, and then traces all
    over again."""
    if hasattr(torch._dynamo.config, "specialize_float"):
        torch._dynamo.config.specialize_float = True
