"""A requested run: what is to be trained and scored, and how far it is on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tape_arith.arith.archives import on_disk
from tape_arith.arith.errors import Failure
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import Name
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.find import run_at
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run, RunState


@dataclass(frozen=True)
class Request:
    """One encoding, with or without an extrapolation, and one seed, to train and then score."""

    name: Name
    seed: int
    preset: str
    config: Config
    root: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The values of the settings that vary in its sweep."""

    @property
    def run(self) -> Run:
        return run_at(self.root, self.preset, self.name.encoding, self.seed)

    @property
    def source(self) -> "Request | None":
        """The run, of the same seed and settings, whose final weights this one starts from."""
        origin = self.name.encoding.origin
        return None if origin is None else replace(self, name=Name(origin.encoding))

    def matches(self, record: RunRecord) -> bool:
        """Tell whether `record` belongs to this run, with the task and encoding unchanged since."""
        requested = (str(self.name.encoding), self.seed)
        same = (record.encoding, record.seed) == requested
        return same and not record.config.differences(self.config) and record.is_current

    def state(self) -> RunState:
        """Return how far the run is; another run in its folder does not count."""
        return RunState(self.run, self.matches)

    def grid(self, evaluation_set: EvaluationSet) -> Grid | None:
        """Return the grid on `evaluation_set`, complete or not; None if there is none.

        Raises Failure if a file is corrupt.
        """
        file = self.run.grid_file(self.name.extrapolation, evaluation_set)
        state = self.state()
        if not (state.exists and on_disk(file).exists()):
            return None
        grid = Grid.load(file)
        digits = evaluation_set.max_digits or self.config.tested_digits
        facts = (grid.name, grid.split, grid.max_digits)
        requested = (str(self.name), evaluation_set.split, digits)
        return grid if state.record.has_scored(grid) and facts == requested else None

    def complete_grid(self, evaluation_set: EvaluationSet) -> Grid | None:
        """Return the complete grid on `evaluation_set`; None if it must still be scored."""
        try:
            grid = self.grid(evaluation_set)
        except Failure:  # corrupt, as `status` says
            return None
        if grid is None or not grid.complete:
            return None
        if evaluation_set != DEFAULT_SET:
            grid.standard = self.complete_grid(DEFAULT_SET)
        return grid
