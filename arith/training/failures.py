"""How a training fails: values that are not finite, too little memory, a failed compilation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tape_arith.arith.errors import Failure
from tape_arith.models.compile import compiling_failed

# How a failed allocation reads: from torch's allocator on a CPU, C++, the libraries of a GPU, and a
# graph compiled for a CPU.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "out of memory",
    "ALLOC_FAILED",
    "aoti_torch_empty_strided",
)

MAX_SKIPPED_IN_A_ROW = 10
"""More steps without a finite loss, each on other problems, mean that the weights are spoiled."""


class NotFinite(Failure):
    """Training diverged. `may_skip` says whether leaving this step out could help."""

    def __init__(self, message: str, may_skip: bool = True) -> None:
        super().__init__(message)
        self.may_skip = may_skip


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


@contextmanager
def explain_out_of_memory(work: str) -> Iterator[None]:
    """Raise Failure in the block if `work` does not fit into memory."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Failure) else error
        if cause is None or not is_out_of_memory(cause):
            raise
        raise Failure(
            f"{work} does not fit into memory: free some, try another --attention, or score where "
            "there is more; the same command goes on from here"
        ) from cause


def compilation_failure(error: BaseException) -> Failure:
    """Make a Failure that quotes the compiler's own line, if there is one."""
    cause = getattr(error, "inner_exception", error)  # unwrap torch's exception
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    reason = next((line.strip() for line in lines if "error: " in line), lines[0])
    return Failure(f"the decoder cannot be compiled here ({reason}): --no-compile does without")


@contextmanager
def explain_failed_compilation() -> Iterator[None]:
    """Raise Failure in the block if the decoder's blocks cannot be compiled."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Failure) else error
        if cause is None or not compiling_failed(cause):
            raise
        raise compilation_failure(cause) from cause
