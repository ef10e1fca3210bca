"""Telling that memory did not suffice from everything else that can go wrong."""

import torch

# By torch's allocator on a CPU, by C++, by the libraries of a GPU.
WORDS = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)
