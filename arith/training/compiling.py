"""Telling that blocks cannot be compiled from everything else that can go wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

from arith.errors import Failure
from models.compile import compiling_failed


def not_compiled(error: BaseException) -> Failure:
    """What is told of it: the compiler's own line, if there is one."""
    cause = getattr(error, "inner_exception", error)  # in torch's wrapping
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    told = next((line.strip() for line in lines if "error: " in line), lines[0])
    return Failure(f"the decoder cannot be compiled here ({told}): --no-compile does without")


@contextmanager
def compiling_told() -> Iterator[None]:
    """Errors: Failure where blocks cannot be compiled."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Failure) else error
        if cause is None or not compiling_failed(cause):
            raise
        raise not_compiled(cause) from cause
