"""Report the progress of runs and sweeps from their files alone. Never imports torch."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps.engines.worker import read_state
from tape_arith.arith.sweeps.jobs import Job, Progress, log_file, plan, training_progress
from tape_arith.arith.sweeps.sweep import load_sweep, sweep_copy, sweep_folder, sweep_names
from tape_arith.arith.terminal import escape_control

STATES = ("waiting", "running", "trained", "scored", "failed")


@dataclass(frozen=True)
class Row:
    """One job of a sweep, or one run.

    step, steps  finished and planned steps of training, or blocks of a grid
    reason       why the job failed, or which failed job it depends on
    where        the place of the job on a remote engine: "slurm: running on n1"
    """

    id: str
    state: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    seconds_left: float | None = None
    log: str | None = None
    reason: str | None = None
    where: str | None = None


def find_folder(target: str, runs: Path) -> Path:
    """Return the folder of the sweep `target` below `runs`, or else the folder `target`.

    A sweep of one's own is named with or without ".toml". Raises UsageError for a sweep that was
    not started.
    """
    file = Path(f"{target.removesuffix('.toml')}.toml")
    own = target not in sweep_names() and file.is_file()
    folder = sweep_folder(file.stem if own else target, runs)
    if sweep_copy(folder).exists():
        return folder
    if (own or target in sweep_names()) and not Path(target).is_dir():
        sweep = shlex.quote(str(file) if own else target)
        runs_option = "" if runs == Path("runs") else f" --runs {shlex.quote(str(runs))}"
        raise UsageError(
            f"the sweep {folder.name} was not started in {runs}: `tape-arith sweep "
            f"{sweep}{runs_option}` starts it"
        )
    return Path(target)


def status(folder: Path) -> list[Row]:
    """Return a row per job of a sweep's folder, or per run in a folder of runs.

    Raises UsageError if `folder` is neither.
    """
    if sweep_copy(folder).exists():
        return list(_rows_of_sweep(folder))
    if runs := find_runs(folder):
        return [_row_of_run(run, run.path.relative_to(folder).as_posix()) for run in runs]
    raise UsageError(f"{folder} holds neither a sweep nor runs: `tape-arith list` shows runs")


def is_active(rows: Sequence[Row]) -> bool:
    """Tell whether a job runs, or waits for a job that did not fail."""
    return any(
        row.state == "running" or (row.state == "waiting" and not row.reason) for row in rows
    )


def content(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows for `--json`, whose keys are stable."""
    return {"schema": 1, "jobs": [asdict(row) for row in rows]}


def as_text(rows: Sequence[Row]) -> str:
    """Format a table for people, with the number of rows in each state."""
    lines = [["job", "state", "where", "step", "loss", "left", "log"]]
    for row in rows:
        step = "" if row.step is None else f"{row.step:,} of {row.steps:,}"
        loss = "" if row.loss is None else f"{row.loss:.4f}"
        left = "" if row.seconds_left is None else str(timedelta(seconds=round(row.seconds_left)))
        tail = row.log or row.reason or ""
        lines.append([row.id, row.state, row.where or "", step, loss, left, tail])
    columns = [cells for cells in zip(*lines, strict=True) if cells[0] != "where" or any(cells[1:])]
    widths = [max(map(len, column)) for column in columns]
    table = [
        "  ".join(map(str.ljust, line, widths)).rstrip() for line in zip(*columns, strict=True)
    ]
    counts = [f"{sum(row.state == state for row in rows)} {state}" for state in STATES]
    return escape_control("\n".join([*table, "", ", ".join(counts)]))


def _rows_of_sweep(folder: Path) -> Iterator[Row]:
    """Yield a row per job; a job that waits for a failed job says so."""
    file, out = sweep_copy(folder), folder.parent.parent
    sweep, began = load_sweep(str(file)), file.stat().st_mtime
    failed: dict[str, str] = {}
    for job in plan(sweep.requests(out), TrainOptions(), out, sweep.splits):
        row = _row_of_job(job, folder, began)
        if row.state == "failed":
            failed[row.id] = row.id
        cause = next((failed[key] for key in job.depends if key in failed), None)
        if row.state == "waiting" and cause is not None:
            failed[row.id] = cause
            row = replace(row, reason=f"after {cause} failed", log=None)
        yield row


def _row_of_job(job: Job, folder: Path, began: float) -> Row:
    """Describe a job of the sweep that `began` at this time, in seconds since the epoch."""
    row, log = _row(job.id, job.progress, job.kind), log_file(folder, job.id)
    state = read_state(log) if row.state in ("waiting", "running") else None
    remote = state is not None and not state.is_final
    # An older log is that of an earlier sweep.
    if log.exists() and (remote or log.stat().st_mtime >= began):
        row = replace(row, log=log.as_posix())
    if row.state == "waiting" and state is not None and state.state == "failed":
        return replace(row, state="failed", reason=state.reason)
    return replace(row, where=str(state)) if remote else row


def _row_of_run(run: Run, name: str) -> Row:
    state = run.state()
    row = _row(name, lambda: training_progress(state), "train")
    if row.state == "trained" and state.scored:
        row = replace(row, state="scored")
    return replace(row, state="running") if state.activity not in (None, "train") else row


def _row(key: str, progress: Callable[[], Progress], kind: str) -> Row:
    try:
        facts = asdict(progress())
    except Failure as error:
        return Row(key, "failed", reason=str(error))
    state = "running" if facts.pop("running") else "waiting"
    done = facts.pop("done")
    return Row(key, {"train": "trained", "score": "scored"}[kind] if done else state, **facts)
