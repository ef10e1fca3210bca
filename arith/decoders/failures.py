"""Recognize errors of a device or its compiler, and report them in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tape_arith.arith.errors import Failure
from tape_arith.models.compiling import compiling_failed

# Parts of the messages of failed allocations: by torch's allocator on a CPU, by C++, by the
# libraries of a GPU, and by a graph compiled for a CPU.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "out of memory",
    "ALLOC_FAILED",
    "aoti_torch_empty_strided",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


@contextmanager
def explain_failures(work: str) -> Iterator[None]:
    """Turn an error in the block into a Failure if memory ran out or compiling failed."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Failure) else error
        if cause is not None and is_out_of_memory(cause):
            raise Failure(
                f"{work} does not fit into memory: free some, try another --backend, or score "
                "where there is more; the same command continues from here"
            ) from cause
        if cause is not None and compiling_failed(cause):
            raise compilation_failure(cause) from cause
        raise


class NotCompilable(Failure):
    """The decoder's blocks cannot be compiled on this machine."""


def compilation_failure(error: BaseException) -> NotCompilable:
    """Make a Failure that quotes the compiler's line with an error, or the first line."""
    cause = getattr(error, "inner_exception", error)  # unwrap torch's exception
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    reason = next((line.strip() for line in lines if "error: " in line), lines[0])
    return NotCompilable(f"the decoder cannot be compiled here ({reason}): use --no-compile")
