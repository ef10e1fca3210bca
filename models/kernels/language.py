"""Triton where it is installed; elsewhere names that let the files of kernels be imported.

A kernel becomes a program of the GPU, or one of Triton's interpreter, at its decorator: whoever
wants the interpreter sets TRITON_INTERPRET=1 before kernels are imported.

    @kernel    what is launched
    @inline    a function that kernels call
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

__all__ = ["AVAILABLE", "INTERPRETED", "inline", "kernel", "tl"]


def _as_it_is(function: Any, **options: Any) -> Any:
    return function


try:
    import triton
    import triton.language as tl
    from triton import jit
except ImportError:
    AVAILABLE = INTERPRETED = False
    tl, jit = SimpleNamespace(constexpr=float), _as_it_is
else:
    AVAILABLE = True
    INTERPRETED = not isinstance(jit(_as_it_is), triton.JITFunction)

# Counts that differ from batch to batch: not worth a program of their own for multiples of 16.
kernel = partial(jit, do_not_specialize=["n", "blocks", "tokens"])
# Within an interpreted kernel a plain function does the same, in half the time.
inline = _as_it_is if INTERPRETED else jit
