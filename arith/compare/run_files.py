"""The files that lie beside the grids of a comparison, each read once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import RunFolder, find_runs
from tape_arith.arith.runs.record import Environment, RunRecord
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.terminal import say

Key = tuple[str, str, int]
"""Preset, encoding and seed: which run it is."""
T = TypeVar("T")


@dataclass(frozen=True)
class RunFiles:
    """The files of one run. One that cannot be read is named on stderr and counts as missing."""

    folder: RunFolder
    record: RunRecord

    @property
    def name(self) -> str:
        """The encoding, as it was trained."""
        return self.record.encoding

    @property
    def preset(self) -> str:
        return self.record.preset

    @property
    def seed(self) -> int:
        return self.record.seed

    @property
    def budget(self) -> dict[str, Any]:
        return self.record.budget

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return or_default(self.folder.metrics, [])

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds of each stage."""
        return or_default(self.folder.timings, {})

    @cached_property
    def environment(self) -> Environment | None:
        return or_default(self.folder.environment, None)


def read_runs(root: Path) -> dict[Key, RunFiles]:
    """Return the runs below `root` by what their run.json says, known encodings or not."""
    runs: dict[Key, RunFiles] = {}
    for folder in find_runs(root):
        record = or_default(folder.record, None)
        if record is not None:
            runs[record.preset, record.encoding, record.seed] = RunFiles(folder, record)
    return runs


def key(grid: Grid) -> Key:
    """Return which run a grid is of."""
    return grid.preset, grid.encoding, grid.seed


def or_default(read: Callable[[], T], default: T) -> T:
    """Return the result of `read`, or `default` with a note on stderr if it fails."""
    try:
        return read()
    except (UsageError, Failure) as error:
        say(f"note: {error}")
        return default
