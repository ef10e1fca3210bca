"""Find runs and their files on disk, and tell how far each run is.

    RUNS/PRESET/PE/seed-S/    (RUNS/PRESET@TASK/... where the task is not the preset's own)
        run.json          the request: encoding, seed, config, data
        environment.json  the machine and software that trained it
        metrics.jsonl     one line every few steps
        timings.json      seconds of each stage
        grid.json         exact match by operand lengths (grid+yarn.json: scored with YaRN;
                          grid@carry.json: scored on the split carry)
        at-N-steps/       grids from before a budget of N steps was extended
        tracking/         what trackers write
        weights/          safetensors; all other files are small enough to copy elsewhere

Facts are read from the files, never from their names. Never imports torch.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.documents import read_document, write_document
from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.files import append_line, slug, write_text
from tape_arith.arith.grids.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.lock import activity, check_lock
from tape_arith.arith.registry.names import Encoding, Name, NamePart
from tape_arith.arith.runs.metrics import read_lines
from tape_arith.arith.runs.record import TASK, Environment, RunRecord, Timings
from tape_arith.arith.terminal import say


@dataclass(frozen=True)
class Progress:
    """Progress of a training, in steps, or of a scoring, in blocks of the grid.

    done   whether a sweep would skip it
    error  why the run's files cannot be read
    """

    done: bool = False
    running: bool = False
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    seconds_left: float | None = None
    error: str | None = None


_START: dict[str, Any] = {"step": 0, "seconds": 0.0}
"""The values that hold before the first line of metrics."""


class _File(str):
    """A file's path inside the folder of a run; as an attribute of RunFolder, its full path."""

    def __get__(self, folder: "RunFolder", owner: type) -> Path:
        return folder.path / self


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Every write checks first that the lock was not lost meanwhile."""

    path: Path

    record_file = _File("run.json")
    metrics_file = _File("metrics.jsonl")
    environment_file = _File("environment.json")
    timings_file = _File("timings.json")
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
        return self.record_file.exists()

    def unfinished(self) -> bool:
        """Tell whether training has saved a checkpoint but has not reached its end."""
        # A kill between the two renames of a save leaves only the previous checkpoint.
        return self.latest.exists() or self.previous.exists()

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints from which training can continue, in the order to try them.

        The steps before the cool-down do not depend on the budget, so `before_cooldown` is always
        a valid one.
        """
        files = (self.latest, self.previous, self.before_cooldown)
        return [file for file in files if file.exists()]

    def finished(self) -> bool:
        """Tell whether the run is trained to the end of its budget."""
        return self.final.exists() and not self.unfinished()

    def has_results(self) -> bool:
        return any(self.path.glob("grid*.json"))

    def has_results_without_weights(self) -> bool:
        """Tell whether the run has a grid, complete or not, but no weights in its folder."""
        return not (self.final.exists() or self.checkpoints()) and self.has_results()

    def is_trained(self, record: RunRecord) -> bool:
        """Tell whether training is over; if the weights are absent, a complete grid shows it."""
        return self.finished() or (not self.unfinished() and self.is_scored(record))

    def is_scored(self, record: RunRecord) -> bool:
        """Tell whether any grid of the run at its present budget is complete."""
        for file in self.path.glob("grid*.json"):
            with suppress(Failure):
                grid = Grid.load(file)
                if grid.complete and record.has_scored(grid):
                    return True
        return False

    def train_progress(self, matches: Callable[[RunRecord], bool] | None = None) -> Progress:
        """Return how far training is, from the files; empty unless the record `matches`."""
        running = activity(self.path) == "train"
        if not self.exists():
            return Progress(running=running)
        try:
            record, metrics = self.record(), self.metrics()
        except Failure as error:
            return Progress(error=str(error))
        if matches is not None and not matches(record):
            return Progress()
        before, last = [_START, _START, *metrics][-2:]
        steps, left = record.config.steps, None
        if before["step"] < last["step"] < steps:  # at the pace of the last line
            pace = (last["seconds"] - before["seconds"]) / (last["step"] - before["step"])
            left = round(float(pace * (steps - last["step"])), 1)
        done = self.is_trained(record)
        return Progress(done, running, last["step"], steps, last.get("loss"), left)

    def record(self) -> RunRecord:
        """Read run.json. Raises Failure if there is none or it is corrupt."""
        return read_document(self.record_file, RunRecord)

    def write_record(self, record: RunRecord) -> None:
        check_lock(self.path)
        write_document(self.record_file, record.to_dict(), RunRecord.kind)

    def environment(self) -> Environment:
        """Read environment.json. Raises Failure if there is none or it is corrupt."""
        return read_document(self.environment_file, Environment)

    def timings(self) -> dict[str, float]:
        """Return the seconds of each stage; {} if there is no file. Raises Failure if corrupt."""
        if not self.timings_file.exists():
            return {}
        return read_document(self.timings_file, Timings).seconds

    def write_timing(self, stage: str, seconds: float) -> None:
        check_lock(self.path)
        stages = self.timings() | {stage: round(seconds, 3)}
        write_document(self.timings_file, {"seconds": stages}, Timings.kind)

    def metrics(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl; [] if there is no file. Raises Corrupt for an invalid line."""
        lines, faults = read_lines(self.metrics_file)
        if faults:
            remedy = "put back a whole copy, or remove that line: it only logs"
            raise Corrupt(f"{self.metrics_file} is corrupt: {faults[0]}; {remedy}")
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
        """Move the grids of a budget of `steps`, which is about to be extended."""
        check_lock(self.path)
        for grid in self.path.glob("grid*.json"):
            aside = self.path / f"at-{steps}-steps" / grid.name
            aside.parent.mkdir(exist_ok=True)
            grid.replace(aside)

    def delete(self) -> None:
        """Delete the run's files, the record first: what a kill leaves does not count as a run."""
        check_lock(self.path)
        files = [self.record_file, self.environment_file, self.metrics_file, self.timings_file]
        files += [*self.path.glob("grid*.json"), *self.path.glob("at-*-steps/grid*.json")]
        for file in [*files, *self.path.glob("weights/*.safetensors")]:
            file.unlink(missing_ok=True)
        self.remove_partial()
        shutil.rmtree(self.tracking, ignore_errors=True)

    def remove_partial(self) -> None:
        """Remove the temporary files that a killed process left; they are never read."""
        for path in self.path.rglob(".*.partial"):
            if not path.is_dir():  # a folder is of an export, which removes it
                path.unlink()


def preset_folder(root: Path, preset: str) -> Path:
    """Return the folder of the runs of a preset, as in runs/mini@modular-sum@modulus=97."""
    return root / slug(preset)


def run_folder(root: Path, preset: str, encoding: Encoding | str, seed: int) -> RunFolder:
    """Return the folder of a run. Its parts are plain names, so it is always below `root`."""
    return RunFolder(preset_folder(root, preset) / slug(str(encoding)) / f"seed-{seed}")


def existing_run(path: Path) -> RunFolder:
    """Return the run at `path`. Raises UsageError if there is none."""
    folder = RunFolder(path)
    if not folder.exists():
        raise UsageError(f"{path} holds no run: `tape-arith list` shows where runs are")
    return folder


def find_runs(root: Path) -> list[RunFolder]:
    """Return every run below `root`, sorted by path."""
    return [RunFolder(file.parent) for file in sorted(root.glob("*/*/seed-*/run.json"))]


def find_grids(
    root: Path,
    preset: str | None = None,
    names: Sequence[Name] | None = None,
    evaluation_set: EvaluationSet = DEFAULT_SET,
) -> list[Grid]:
    """Return the grids below `root` on `evaluation_set`: all, or those of `names`.

    A corrupt grid is named on stderr and left out. With `names`, runs of other encodings are not
    opened. Raises UsageError as `check_one_source` does.
    """
    slugs = ["*"] if names is None else [slug(str(name.encoding)) for name in names]
    wanted = None if names is None else set(map(str, names))
    result = []
    patterns = [f"{slug(preset) if preset else '*'}/{each}/seed-*" for each in dict.fromkeys(slugs)]
    folders = [RunFolder(path) for pattern in patterns for path in sorted(root.glob(pattern))]
    check_one_source(folders)
    for folder in folders:
        grids = [
            grid for grid in read_grids(folder).values() if wanted is None or grid.name in wanted
        ]
        selected = _on_set(evaluation_set, folder, grids)
        if selected and evaluation_set.split != EVALUATION:
            complete = [grid for grid in grids if grid.complete]
            standard = {grid.name: grid for grid in _on_set(DEFAULT_SET, folder, complete)}
            for grid in selected:
                grid.standard = standard.get(grid.name)
        result += selected
    return result


def _on_set(evaluation_set: EvaluationSet, folder: RunFolder, grids: list[Grid]) -> list[Grid]:
    """Select the grids on `evaluation_set`; its `max_digits` None means the run's tested digits."""
    grids = [grid for grid in grids if grid.split == evaluation_set.split]
    digits = evaluation_set.max_digits
    if digits is None and grids:
        try:
            digits = folder.record().config.tested_digits
        except Failure as error:
            if len({grid.name for grid in grids}) == len(grids):
                return grids
            say(f"note: left out: {error}")
    return [grid for grid in grids if grid.max_digits == digits]


def check_one_source(folders: Sequence[RunFolder]) -> None:
    """Raise UsageError if runs of one encoding and preset were trained with different source files.

    Their seeds would be averaged as if they were of one encoding. All runs of a preset must have
    one file of its task.
    """
    first: dict[Path, tuple[RunFolder, dict[str, str]]] = {}
    for folder in folders:
        with suppress(Failure):  # reported by whoever reads the record
            sources = folder.record().sources
            tasks = {part: sha256 for part, sha256 in sources.items() if part.startswith(TASK)}
            for alike, own in ((folder.path.parent, sources), (folder.path.parent.parent, tasks)):
                other, other_own = first.setdefault(alike, (folder, own))
                if own != other_own:
                    raise UsageError(
                        f"{other.path} and {folder.path} were trained with different versions of "
                        f"{', '.join(own | other_own)}: train the older anew with --fresh, or "
                        "keep the versions apart with --runs"
                    )


def read_grids(folder: RunFolder) -> dict[str, Grid]:
    """Return the grids of a run by file name without suffix; name and leave out corrupt ones."""
    grids = {}
    for file in sorted(folder.path.glob("grid*.json"), key=lambda file: file.stem):
        try:
            grids[file.stem] = Grid.load(file)
        except Failure as error:
            say(f"note: left out: {error}")
    return grids
