"""Measure how positional encodings generalize in length: `import tape_arith` does what commands do.

What is listed in `__all__` is documented in arith/api.py, and imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_arith.arith.api import Run, find_runs, heatmap, leaderboard, load_grids, train
    from tape_arith.arith.errors import Failure, UsageError
    from tape_arith.arith.grids.grid import Grid
__all__ = [
    "Failure",
    "Grid",
    "Run",
    "UsageError",
    "find_runs",
    "heatmap",
    "leaderboard",
    "load_grids",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a function of the API when it is asked for: most take torch or pandas along."""
    if name not in __all__:
        raise AttributeError(f"module 'tape_arith' has no attribute '{name}'")
    return getattr(import_module("tape_arith.arith.api"), name)


def __dir__() -> list[str]:
    return [*__all__, "arith", "models"]
