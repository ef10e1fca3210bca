"""Report errors of a device or its compiler in one line; cut work finer where memory runs out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from tape_arith.arith.errors import Failure, is_out_of_memory
from tape_arith.arith.terminal import say
from tape_arith.models.compiling import compiling_failed
from tape_arith.models.hardware import release_memory

Result = TypeVar("Result")


class Cut(Protocol):
    """What remembers how many times finer than usual groups of problems are cut."""

    finer: int


def fitting(
    attempt: Callable[[], Result],
    cut: Cut,
    largest: Callable[[], int],
    *,
    work: str,
    tell: Callable[[str], None] = say,
) -> Result:
    """Return `attempt()`; while memory runs out, double `cut.finer` and repeat it.

    largest  tells how many problems are in the largest group that `attempt` would make now
    work     words for it, as in "step 3"

    Raises Failure if not even one problem at a time fits.
    """
    while True:
        try:
            return attempt()
        except (MemoryError, RuntimeError, OSError) as error:
            if not is_out_of_memory(error):
                raise
        # Not inside `except`, where the error keeps the tensors that filled the memory alive.
        most = largest()
        release_memory()
        if most <= 1:
            raise Failure(
                f"{work} does not fit in memory, not even one problem at a time: free some, take a "
                "smaller decoder (num_layers, hidden_size), or a machine with more"
            )
        while largest() >= most:  # groups may be far smaller than they could be
            cut.finer *= 2
        tell(
            f"note: out of memory in {work}, with up to {most} problems at a time: batches are cut "
            f"{cut.finer} times finer from here on (slower, and the same numbers except for "
            "rounding)"
        )


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
