"""Telling that memory did not suffice from everything else that can go wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from arith.errors import Failure
from models.build import compiling_failed

# By torch's allocator on a CPU, by C++, by the libraries of a GPU.
WORDS = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)


def not_compiled(error: BaseException) -> Failure:
    """What is told where blocks cannot be compiled: the compiler's own line, if there is one."""
    cause = getattr(error, "inner_exception", error)  # in torch's wrapping
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    told = next((line.strip() for line in lines if "error: " in line), lines[0])
    return Failure(f"the decoder cannot be compiled here ({told}): --no-compile does without")


@contextmanager
def memory_told(what: str) -> Iterator[None]:
    """Errors: Failure where `what` does not fit into memory, or its decoder cannot be compiled."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Failure) else error
        if cause is None or not out_of_memory(cause):
            if cause is not None and compiling_failed(cause):
                raise not_compiled(cause) from cause
            raise
        raise Failure(
            f"{what} does not fit into memory: free some, try another --attention, or score where "
            "there is more; the same command goes on from here"
        ) from cause
