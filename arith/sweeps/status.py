"""How far runs and sweeps are, from their files alone. No torch here."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY, UsageError
from tape_arith.arith.files import Count, Part, Text, append_line, parse_json, read_text, validated
from tape_arith.arith.runs.folder import Progress, RunFolder, find_runs
from tape_arith.arith.runs.lock import activity
from tape_arith.arith.sweeps.engines.worker import read_state
from tape_arith.arith.sweeps.jobs import JobEnd, JobLine, log_file, read_jobs
from tape_arith.arith.terminal import escape_control

STATES = ("waiting", "running", "trained", "scored", "failed")
_NO_FAILURE = (EXIT_DONE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED)


class _End(Part):
    """A line of ends.jsonl: how a job ended. For people; it never decides what is done."""

    id: Text
    exit: Annotated[int, Field(ge=-1000, le=1000)]
    reason: str | None
    log: str | None
    time: Count

    @property
    def failed(self) -> bool:
        return self.exit not in _NO_FAILURE and self.exit > 0


@dataclass(frozen=True)
class Row:
    """One job of a sweep, or one run.

    step, steps  of training, or blocks of a grid
    reason       why the job failed, or which failed job it waits for in vain
    where        where a remote engine has the job: "slurm: running on n1"
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


def note_end(folder: Path, end: JobEnd) -> None:
    """Add how a job ended to a sweep's ends.jsonl. Raises Failure."""
    line = {"id": end.job.id, "exit": end.code, "reason": end.reason}
    line |= {"log": end.log and end.log.as_posix(), "time": round(time.time())}
    append_line(folder / "ends.jsonl", json.dumps(line))


def forget_ends(folder: Path) -> None:
    """Forget how jobs ended when a sweep begins anew: those that failed wait again."""
    (folder / "ends.jsonl").unlink(missing_ok=True)


def status(folder: Path) -> list[Row]:
    """A row a job of a sweep's folder, or a row a run of a folder of runs. Raises UsageError."""
    if (folder / "jobs.jsonl").exists():
        return list(_rows_of_sweep(folder))
    if runs := find_runs(folder):
        return [_row_of_run(run, run.path.relative_to(folder).as_posix()) for run in runs]
    if sweeps := sorted(folder.glob("sweeps/*/jobs.jsonl")):
        raise UsageError(
            f"{folder} holds no runs itself, but sweeps: `tape-arith status {sweeps[0].parent}`"
        )
    raise UsageError(f"{folder} holds neither a sweep nor runs: `tape-arith list` shows runs")


def is_active(rows: Sequence[Row]) -> bool:
    """Whether anything runs, or waits for nothing that failed."""
    return any(
        row.state == "running" or (row.state == "waiting" and not row.reason) for row in rows
    )


def content(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows for `--json`: keys are stable."""
    return {"schema": 1, "jobs": [asdict(row) for row in rows]}


def as_text(rows: Sequence[Row]) -> str:
    """A table for people, and the number of rows in each state."""
    lines = [["job", "state", "where", "step", "loss", "left", "log"]]
    for row in rows:
        step = "" if row.step is None else f"{row.step:,} of {row.steps:,}"
        loss = "" if row.loss is None else f"{row.loss:.4f}"
        left = "" if row.seconds_left is None else str(timedelta(seconds=round(row.seconds_left)))
        tail = [step, loss, left, row.log or row.reason or ""]
        lines.append([row.id, row.state, row.where or "", *tail])
    if not any(row.where for row in rows):
        for line in lines:
            del line[2]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    counts = [f"{sum(row.state == state for row in rows)} {state}" for state in STATES]
    return escape_control("\n".join([*table, "", ", ".join(counts)]))


def _rows_of_sweep(folder: Path) -> Iterator[Row]:
    ends, began = _ends(folder), (folder / "jobs.jsonl").stat().st_mtime
    failed: dict[str, str] = {}
    for line in read_jobs(folder):  # each job after those it depends on
        row = _row_of_job(line, folder, began, ends.get(line.id))
        if row.state == "failed":
            failed[row.id] = row.id
        cause = next((failed[key] for key in line.depends if key in failed), None)
        if row.state == "waiting" and cause is not None:
            failed[row.id] = cause
            row = replace(row, reason=f"after {cause} failed", log=None)
        yield row


def _row_of_job(line: JobLine, folder: Path, began: float, end: _End | None) -> Row:
    row = _row(line.id, line.progress(), "scored" if line.kind == "score" else "trained")
    if row.state == "waiting" and end is not None and end.failed:
        return replace(row, state="failed", reason=end.reason, log=end.log)
    log = log_file(folder, line.id)
    job_state = read_state(log) if row.state in ("waiting", "running") else None
    remote = job_state is not None and job_state.state != "ended"
    if log.exists() and (remote or log.stat().st_mtime >= began):  # else of an earlier call
        row = replace(row, log=log.as_posix())
    return replace(row, where=str(job_state)) if remote else row


def _row_of_run(folder: RunFolder, name: str) -> Row:
    progress = folder.train_progress()
    scored = progress.done and folder.is_scored(folder.record())
    row = _row(name, progress, "scored" if scored else "trained")
    return replace(row, state="running") if activity(folder.path) not in (None, "train") else row


def _row(key: str, progress: Progress, done: str) -> Row:
    facts = asdict(progress)
    reason = facts.pop("error")
    state = "running" if facts.pop("running") else "waiting"
    state = done if facts.pop("done") else state
    return Row(key, state, **facts) if reason is None else Row(key, "failed", reason=reason)


def _ends(sweep: Path) -> dict[str, _End]:
    """The last end of each job; a line that is damaged, or cut short by a kill, is left out."""
    ends = {}
    file = sweep / "ends.jsonl"
    for line in read_text(file).splitlines() if file.exists() else []:
        try:
            end = validated(parse_json(line), _End)
        except ValueError:
            continue
        ends[end.id] = end
    return ends
