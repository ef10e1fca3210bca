"""A run as it is planned: what is trained and scored, and how much of it is in its folder.

Never imports torch.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Failure
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.lock import activity
from tape_arith.arith.registry.names import Name
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.folder import Progress, RunFolder, run_folder
from tape_arith.arith.runs.record import RunRecord


@dataclass(frozen=True)
class Run:
    """One encoding, with or without an extrapolation, and one seed: trained, then scored."""

    name: Name
    seed: int
    preset: str
    config: Config
    root: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The values of the settings that vary in its sweep."""

    @property
    def folder(self) -> RunFolder:
        return run_folder(self.root, self.preset, self.name.encoding, self.seed)

    @property
    def source(self) -> "Run | None":
        """The run, of the same seed and settings, whose final weights this one starts from."""
        origin = self.name.encoding.origin
        return None if origin is None else replace(self, name=Name(origin.encoding))

    def matches(self, record: RunRecord) -> bool:
        """Tell whether `record` is of this run, and task and encoding are unchanged since then."""
        requested = (str(self.name.encoding), self.seed, self.config)
        return (record.encoding, record.seed, record.config) == requested and record.is_current

    def record(self) -> RunRecord | None:
        """Return the record in the run's folder if it can be read and is of this run."""
        with suppress(Failure):
            record = self.folder.record()
            return record if self.matches(record) else None
        return None

    def score_progress(self, evaluation_set: EvaluationSet) -> Progress:
        """Read how far the run is scored on `evaluation_set`."""
        file = self.folder.grid_file(self.name.extrapolation, evaluation_set)
        running = activity(self.folder.path) == f"score {file.name}"
        try:
            grid = self._grid(evaluation_set)
        except Failure as error:
            return Progress(error=str(error))
        if grid is None:
            return Progress(running=running)
        blocks = grid.evaluation.problems_per_cell
        return Progress(grid.complete, running, grid.blocks_done, blocks)

    def complete_grid(self, evaluation_set: EvaluationSet) -> Grid | None:
        """Return the run's grid on `evaluation_set`; None if it must still be scored."""
        try:
            grid = self._grid(evaluation_set)
        except Failure:  # corrupt, as `status` says
            return None
        if grid is None or not grid.complete:
            return None
        if evaluation_set != DEFAULT_SET:
            grid.standard = self.complete_grid(DEFAULT_SET)
        return grid

    def _grid(self, evaluation_set: EvaluationSet) -> Grid | None:
        """Return the run's grid, as far as it is scored; None if the file is of another run.

        Raises Failure if its file is corrupt.
        """
        file, record = self.folder.grid_file(self.name.extrapolation, evaluation_set), self.record()
        if record is None or not file.exists():
            return None
        grid = Grid.load(file)
        digits = evaluation_set.max_digits or self.config.tested_digits
        facts = (grid.name, grid.split, grid.max_digits)
        requested = (str(self.name), evaluation_set.split, digits)
        return grid if record.has_scored(grid) and facts == requested else None
