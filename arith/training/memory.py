"""Telling that memory did not suffice from everything else that can go wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from arith.errors import Failure

# By torch's allocator on a CPU, by C++, by the libraries of a GPU, by a graph compiled for a CPU.
WORDS = (
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "out of memory",
    "ALLOC_FAILED",
    "aoti_torch_empty_strided",
)


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)


@contextmanager
def memory_told(what: str) -> Iterator[None]:
    """Errors: Failure where `what` does not fit into memory."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Failure) else error
        if cause is None or not out_of_memory(cause):
            raise
        raise Failure(
            f"{what} does not fit into memory: free some, try another --attention, or score where "
            "there is more; the same command goes on from here"
        ) from cause
