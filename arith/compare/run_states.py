"""Read the runs of a comparison; an unreadable file is named on stderr and never ends it."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.run import RunState
from tape_arith.arith.terminal import say

Key = tuple[str, str, int]
"""Preset, encoding (as it was trained) and seed, which identify a run."""
T = TypeVar("T")


class TolerantState(RunState):
    """The state of a run whose unreadable files are named once on stderr, then count as missing."""

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return or_default(self.run.metrics, [])


def read_states(root: Path) -> dict[Key, TolerantState]:
    """Return the runs below `root` by the key in their run.json, also of unknown encodings."""
    states: dict[Key, TolerantState] = {}
    for run in find_runs(root):
        state = TolerantState(run)
        try:
            record = state.record
        except Failure as error:
            say(f"note: {error}")
        else:
            states[record.preset, record.encoding, record.seed] = state
    return states


def key(grid: Grid) -> Key:
    """Return the key of the run that a grid belongs to."""
    return grid.preset, grid.encoding, grid.seed


def or_default(read: Callable[[], T], default: T) -> T:
    """Return the result of `read`, or `default` with a note on stderr if it fails."""
    try:
        return read()
    except (UsageError, Failure) as error:
        say(f"note: {error}")
        return default
