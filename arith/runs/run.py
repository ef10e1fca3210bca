"""A run on disk: its files, read and written.

    RUNS/PRESET/PE/seed-S/    (RUNS/PRESET@TASK/... where the task is not the preset's own;
                               RUNS may be an archive of `tape-arith pack`, which is only read)
        run.json          the record: encoding, seed, config, data, machines, seconds
        metrics.jsonl     one line every few steps
        grid.json         exact match by operand lengths (grid+yarn.json: scored with YaRN;
                          grid@carry.json: scored on the split carry)
        at-N-steps/       grids at a budget of N steps, before it was extended
        tracking/         what trackers write
        weights/          safetensors; all other files are small enough to copy elsewhere

Facts are read from files, never from their names.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tape_arith.arith.archives import on_disk
from tape_arith.arith.documents import read_document, write_validated
from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.files import append_line, slug, write_text
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.lock import activity, check_lock
from tape_arith.arith.registry.names import NamePart
from tape_arith.arith.runs.metrics import read_lines
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.terminal import say


class _File(str):
    """A file's path inside the folder of a run; as an attribute of Run, its full path."""

    def __get__(self, folder: "Run", owner: type) -> Path:
        return folder.path / self


@dataclass(frozen=True)
class Run:
    """A run at a path. Every write first checks that the lock is still held."""

    path: Path

    record_file = _File("run.json")
    metrics_file = _File("metrics.jsonl")
    tracking = _File("tracking")
    """The folder that trackers write to."""
    final = _File("weights/final.safetensors")
    """Weights after the last step."""
    latest = _File("weights/latest.safetensors")
    """The checkpoint from which an unfinished training continues."""
    previous = _File("weights/previous.safetensors")
    """The checkpoint before `latest`, which is used if `latest` is damaged."""
    before_cooldown = _File("weights/before-cooldown.safetensors")
    """The checkpoint from which `train RUN --steps N` continues."""

    @property
    def place(self) -> Path:
        """Where it is in its folder of runs or archive: PRESET/PE/seed-S."""
        return Path(*self.path.parts[-3:])

    def grid_file(
        self,
        extrapolation: NamePart | str | None = None,
        evaluation_set: EvaluationSet = DEFAULT_SET,
    ) -> Path:
        """Return the path of the grid with an extrapolation on a normalized evaluation set."""
        split, reach = evaluation_set.filename_parts
        way = f"+{slug(str(extrapolation))}" if extrapolation else ""
        return self.path / f"grid{split}{way}{reach}.json"

    def exists(self) -> bool:
        return on_disk(self.record_file).exists()

    def state(self) -> "RunState":
        """Return how far the run is."""
        return RunState(self)

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints from which training can continue, in the order to try them.

        The steps before the cool-down do not depend on the budget, so `before_cooldown` is always
        valid.
        """
        files = (self.latest, self.previous, self.before_cooldown)
        return [file for file in files if file.exists()]

    def grid_files(self) -> list[Path]:
        """Return the files of grids, complete or not, sorted by name."""
        return sorted(self._matching("grid*.json"), key=lambda file: file.stem)

    def every_grid_file(self) -> list[Path]:
        """Return the files of grids, then of those at a budget before it was extended."""
        return [*self.grid_files(), *sorted(self._matching("at-*-steps/grid*.json"))]

    def _matching(self, pattern: str) -> list[Path]:
        folder = on_disk(self.path)
        return [self.path / file.relative_to(folder) for file in folder.glob(pattern)]

    def grids(self) -> dict[str, Grid]:
        """Read the grids by file name without suffix; name corrupt grids and leave them out."""
        grids = {}
        for file in self.grid_files():
            try:
                grids[file.stem] = Grid.load(file)
            except Failure as error:
                say(f"note: left out: {error}")
        precision = self.precision() if grids else None
        for grid in grids.values():
            grid.precision = precision
        return grids

    def precision(self) -> str | None:
        """Return what the training computed in, as in "bfloat16"; None if that is not known."""
        with suppress(Failure):
            dtypes = dict.fromkeys(machine.dtype for machine in self.record().machines)
            return " and ".join(dtypes) or None
        return None

    def record(self) -> RunRecord:
        """Read run.json. Raises Failure if there is none or it is corrupt."""
        return read_document(self.record_file, RunRecord)

    def write_record(self, record: RunRecord) -> None:
        check_lock(self.path)
        write_validated(self.record_file, asdict(record), RunRecord)

    def update_record(self, **changes: Any) -> RunRecord:
        """Write fields of run.json anew, and return the record."""
        record = replace(self.record(), **changes)
        self.write_record(record)
        return record

    def write_timing(self, stage: str, seconds: float) -> None:
        """Record how long a stage took."""
        self.update_record(seconds=self.record().seconds | {stage: round(seconds, 3)})

    def metrics(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl; [] if there is no file. Raises Corrupt for an invalid line."""
        lines, faults = read_lines(self.metrics_file)
        if faults:
            remedy = "put back a whole copy, or remove that line: it only has measurements"
            raise Corrupt(f"{self.metrics_file} is corrupt: {faults[0]}", remedy)
        return lines

    def add_metrics(self, content: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl. Raises Failure if writing fails."""
        check_lock(self.path)
        append_line(self.metrics_file, json.dumps(content, allow_nan=False))

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines after `step`, which will be repeated; name and drop corrupt lines."""
        check_lock(self.path)
        lines, faults = read_lines(self.metrics_file)
        for fault in faults:
            say(f"note: left out of {self.metrics_file}: {fault}")
        earlier = (json.dumps(line) + "\n" for line in lines if line["step"] <= step)
        write_text(self.metrics_file, "".join(earlier))

    def set_grids_aside(self, steps: int) -> None:
        """Move the grids of a budget of `steps` to a subfolder, before the budget is extended."""
        check_lock(self.path)
        for grid in self.grid_files():
            aside = self.path / f"at-{steps}-steps" / grid.name
            aside.parent.mkdir(exist_ok=True)
            grid.replace(aside)

    def delete(self) -> None:
        """Delete the run's files, the record first: the rest alone does not count as a run."""
        check_lock(self.path)
        files = [self.record_file, self.metrics_file, *self.every_grid_file()]
        for file in [*files, *self.path.glob("weights/*.safetensors")]:
            file.unlink(missing_ok=True)
        self.remove_partial()
        shutil.rmtree(self.tracking, ignore_errors=True)

    def remove_partial(self) -> None:
        """Remove the temporary files that a killed process left; they are never read."""
        check_lock(self.path)
        for path in self.path.rglob(".*.partial"):
            if not path.is_dir():  # a folder belongs to an export, which removes it
                path.unlink()


@dataclass(frozen=True)
class RunState:
    """How far a run is. Each file is read once, when first needed; raises Failure if corrupt."""

    run: Run
    matches: Callable[[RunRecord], bool] = lambda record: True
    """Whether a record belongs to the requested run; if not, that run does not exist."""

    @cached_property
    def record(self) -> RunRecord:
        return self.run.record()

    @cached_property
    def exists(self) -> bool:
        return self.run.exists() and self.matches(self.record)

    @cached_property
    def weights(self) -> Literal["final", "checkpoint"] | None:
        """The weights in the folder; "checkpoint" if training can continue to the budget."""
        # A kill between the two renames of a save leaves only the previous checkpoint.
        if self.run.latest.exists() or self.run.previous.exists():
            return "checkpoint"
        return "final" if self.run.final.exists() else None

    @cached_property
    def lacks_weights(self) -> bool:
        """Whether the run has a grid, complete or not, but no weights in its folder."""
        has_weights = self.weights is not None or bool(self.run.checkpoints())
        return not has_weights and bool(self.run.grid_files())

    @cached_property
    def trained(self) -> bool:
        """Whether training is finished; without weights, a complete grid shows it."""
        over = self.weights == "final" or (self.weights is None and self.scored)
        return self.exists and over

    @cached_property
    def scored(self) -> bool:
        """Whether any grid at the present budget is complete; a corrupt one counts as missing."""
        for file in self.run.grid_files() if self.exists else ():
            with suppress(Failure):
                grid = Grid.load(file)
                if grid.complete and self.record.has_scored(grid):
                    return True
        return False

    @cached_property
    def activity(self) -> str | None:
        """What a process is doing with the run: "train", "score grid.json" or None."""
        return activity(self.run.path)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self.run.metrics()

    @property
    def step(self) -> int:
        return self.metrics[-1]["step"] if self.metrics else 0

    @property
    def seconds_left(self) -> float | None:
        """The rest of the training at the pace of the last lines of metrics; None if unknown."""
        start, steps = {"step": 0, "seconds": 0.0}, self.record.config.steps
        before, last = [start, start, *self.metrics][-2:]
        if not before["step"] < last["step"] < steps:
            return None
        pace = (last["seconds"] - before["seconds"]) / (last["step"] - before["step"])
        return round(float(pace * (steps - last["step"])), 1)
