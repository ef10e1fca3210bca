"""Check that results are what they say, without their weights. Never imports torch or runs code.

What a file says twice must agree, counts must be possible, and the problems are generated again for
their hash: those that were scored, and those of a dataset that was trained on. Whether the counts
are true only scoring again can tell.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tape_arith.arith.archives import intruders
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.files import sha256 as sha256_of
from tape_arith.arith.grids.axes import scored_axes
from tape_arith.arith.grids.facts import Evaluation
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import task_location
from tape_arith.arith.runs.find import every_run, run_place
from tape_arith.arith.runs.metrics import EVALUATE_EVERY, Line
from tape_arith.arith.runs.record import TASK, RunRecord
from tape_arith.arith.runs.run import Run


@dataclass
class Verdict:
    """What is known of a run's files.

    run       its folder, below that of all runs
    faults    what is wrong; empty if the run is valid
    checked   a line for each grid: its means, computed from its counts
    notes     what could not be checked, and why
    """

    run: str
    faults: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def validate(root: Path, preset: str | None = None) -> list[Verdict]:
    """Check each run of a folder or an archive, or those of a preset.

    Raises UsageError if there is none.
    """
    runs = every_run(root, preset, without_record=True)
    if not runs:
        of_preset = f" of {preset}" if preset else ""
        raise UsageError(f"no run{of_preset} in {root}: `tape-arith list` shows where runs are")
    verdicts = [_verdict(run, run.path.relative_to(root).as_posix()) for run in runs]
    fault = "a link, or a path that leads out: it is not read, and no `pack` has written it"
    return [*verdicts, *(Verdict(name, [fault]) for name in intruders(root))]


def _verdict(run: Run, name: str) -> Verdict:
    verdict = Verdict(name)
    try:
        record = run.record()
    except Failure as error:
        verdict.faults.append(_of(run, error))
        return verdict
    verdict.notes += _unknown_code(record)
    if run.place != (own := run_place(record.preset, record.encoding, record.seed)):
        verdict.faults.append(f"it is the run {own.as_posix()} by its run.json, not by its folder")
    try:
        verdict.notes += _missing(run.metrics(), record.config.steps)
    except Failure as error:
        verdict.faults.append(_of(run, error))
    verdict.faults += _other_data(record)
    for file in run.every_grid_file():
        try:
            grid = Grid.load(file)
        except Failure as error:
            verdict.faults.append(_of(run, error))
            continue
        faults = list(_contradictions(grid, record, earlier=file.parent != run.path))
        verdict.faults += [f"{file.name}: {fault}" for fault in faults]
        verdict.checked += [] if faults else [grid.summary()]
    if not verdict.checked and not verdict.faults:
        verdict.notes.append("it is not scored")
    return verdict


def _missing(lines: Sequence[Line], steps: int) -> Iterator[str]:
    """Say which measurements of a whole training are missing. Raises Failure at one after it."""
    last = int(lines[-1]["step"]) if lines else 0
    if last > steps:
        raise Failure(f"metrics.jsonl has step {last:,} of {steps:,}")
    evaluated = {line["step"] for line in lines if line["exact_match"] is not None}
    due = {*range(EVALUATE_EVERY, last + 1, EVALUATE_EVERY)}
    if not lines:
        yield "metrics.jsonl is missing or empty"
    elif last < steps:
        yield f"metrics.jsonl ends at step {last:,} of {steps:,}"
    if gaps := len(due - evaluated):
        yield f"metrics.jsonl lacks {gaps} of {len(due)} evaluations before its end"


def _of(run: Run, error: Failure) -> str:
    """Return what is wrong, with the file's name alone: its run is named beside it.

    How to make the file again is for whoever made it.
    """
    fault = error.fault if isinstance(error, Corrupt) else str(error)
    return fault.replace(f"{run.path}/", "")


def _unknown_code(record: RunRecord) -> Iterator[str]:
    """Say what of a run cannot be checked here."""
    if not _generates(record.config.task):
        yield f"the problems of {record.config.task} are not made again: its code is not ours"
    for part, sha256 in record.sources.items():
        file = Path(part.removeprefix(TASK).partition(":")[0])
        if not (file.is_file() and os.access(file, os.R_OK)):
            yield f"trained with {part}, which is not here (SHA-256 {sha256[:12]})"
        elif sha256_of(file) != sha256:
            yield f"trained with another {part} than the one here (SHA-256 {sha256[:12]})"


def _other_data(record: RunRecord) -> Iterator[str]:
    """Say that a run began on a dataset that its settings do not give."""
    if record.data is None or not _generates(record.config.task):
        return
    bucket = record.config.bucket(record.seed)
    if record.task_version == bucket.version:  # another one is told of each grid
        made = _dataset_sha256(bucket, record.config.num_problems)
        if made != record.data:
            yield (
                f"its dataset (SHA-256 {record.data[:12]}) is not that of its settings "
                f"({made[:12]})"
            )


def _contradictions(grid: Grid, record: RunRecord, *, earlier: bool) -> Iterator[str]:
    """Say where a grid contradicts its run, or what its run's settings give."""
    for key in ("encoding", "seed", "preset"):
        if getattr(grid, key) != getattr(record, key):
            yield f"it is of {key} {getattr(grid, key)}, its run of {getattr(record, key)}"
    if not earlier and grid.budget != record.budget:
        yield "it is of another budget or other settings than its run"
    if not _generates(record.config.task):
        return
    bucket = record.config.evaluation_bucket(grid.split, grid.max_digits)
    if grid.evaluation.version != bucket.version:
        yield f"its task has version {grid.evaluation.version}, here it has {bucket.version}"
    elif grid.evaluation != _evaluation(bucket, grid.evaluation.problems_per_cell):
        yield "its problems are not those that its settings give"
    if grid.axes != scored_axes(record.config.bucket(record.seed), bucket):
        yield "its lengths are not those that its run was trained and tested on"


def _generates(task: str) -> bool:
    """Tell whether this version can make the problems of a task without running others' code."""
    try:
        return task_location(task).is_builtin
    except UsageError:
        return False


_evaluation = cache(Evaluation.of)


@cache
def _dataset_sha256(bucket: Bucket, count: int) -> str:
    with TemporaryDirectory() as folder:
        return generate(Path(folder), bucket, count).sha256
