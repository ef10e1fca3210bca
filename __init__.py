"""Measure length generalization of positional encodings: does in Python what commands do.

The names in `__all__` are imported when they are first used; arith/api documents them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_arith.arith.api.comparisons import (
        curves,
        heatmap,
        leaderboard,
        load_grids,
        report,
        study,
        tasks,
    )
    from tape_arith.arith.api.models import problems, score_language_model, score_model
    from tape_arith.arith.api.run import Run, find_run, find_runs
    from tape_arith.arith.api.runs import generate, plan_sweep, run, train
    from tape_arith.arith.errors import Failure, UsageError
    from tape_arith.arith.grids.grid import Grid
    from tape_arith.arith.runs.options import Compute, TrainOptions

_MODULES = {
    "api.run": "Run find_run find_runs",
    "api.runs": "generate plan_sweep run train",
    "api.models": "problems score_language_model score_model",
    "api.comparisons": "curves heatmap leaderboard load_grids report study tasks",
    "errors": "Failure UsageError",
    "grids.grid": "Grid",
    "runs.options": "Compute TrainOptions",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = [
    "Compute",
    "Failure",
    "Grid",
    "Run",
    "TrainOptions",
    "UsageError",
    "curves",
    "find_run",
    "find_runs",
    "generate",
    "heatmap",
    "leaderboard",
    "load_grids",
    "plan_sweep",
    "problems",
    "report",
    "run",
    "score_language_model",
    "score_model",
    "study",
    "tasks",
    "train",
]


if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """Import a name of the API when it is first used, because most need torch or pandas."""
        if name not in _PLACES:
            raise AttributeError(f"module 'tape_arith' has no attribute '{name}'")
        return getattr(import_module(f"tape_arith.arith.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "arith", "models"]
