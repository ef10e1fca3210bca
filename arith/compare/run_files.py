"""The files of runs, read as far as they can be: a comparison never fails because of one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.facts import Budget
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.folder import RunFolder, find_runs
from tape_arith.arith.runs.record import Environment, RunRecord
from tape_arith.arith.terminal import say

Key = tuple[str, str, int]
"""Preset, encoding and seed, which identify a run."""
T = TypeVar("T")


@dataclass(frozen=True)
class RunFiles:
    """The files of one run; an unreadable file is named on stderr and counts as missing."""

    folder: RunFolder
    record: RunRecord
    preset: str
    name: str
    """The encoding, as it was trained."""
    seed: int
    budget: Budget

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return or_default(self.folder.metrics, [])

    @cached_property
    def seconds(self) -> dict[str, float]:
        """The duration of each stage, in seconds."""
        return or_default(self.folder.timings, {})

    @cached_property
    def environment(self) -> Environment | None:
        return or_default(self.folder.environment, None)


def read_runs(root: Path) -> dict[Key, RunFiles]:
    """Return the runs below `root` by the key in their run.json, also of unknown encodings."""
    runs: dict[Key, RunFiles] = {}
    for folder in find_runs(root):
        record = or_default(folder.record, None)
        if record is not None:
            run = (record.preset, record.encoding, record.seed)
            runs[run] = RunFiles(folder, record, *run, record.budget)
    return runs


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
