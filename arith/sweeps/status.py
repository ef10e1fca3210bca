"""How far runs and sweeps are, from their files alone. No torch here."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tape_arith.arith.documents import Count, InvalidValue, Part, Text, validated_json
from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY, UsageError
from tape_arith.arith.files import append_line, read_bytes
from tape_arith.arith.runs.folder import Progress, RunFolder, find_runs
from tape_arith.arith.runs.lock import activity
from tape_arith.arith.sweeps.engines.worker import read_state
from tape_arith.arith.sweeps.jobs import JobLine, log_file, read_jobs
from tape_arith.arith.terminal import escape_control

STATES = ("waiting", "running", "trained", "scored", "failed")
_NO_FAILURE = (EXIT_DONE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED)


class _End(Part):
    """A line of ends.jsonl: how a job ended."""

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
    """One job of a sweep, or one run. `step` of `steps`: of training, or blocks of a grid."""

    id: str
    state: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    seconds_left: float | None = None
    log: str | None = None
    reason: str | None = None
    """Why the job failed, or which failed job it waits for in vain."""
    where: str | None = None
    """Where a remote engine has the job: "slurm: running on n1"."""


def note_end(folder: Path, job: str, code: int, reason: str, log: Path | None) -> None:
    """Add how a job ended to a sweep's ends.jsonl: for people; it never decides what is done."""
    end = {"id": job, "exit": code, "reason": reason, "log": log and log.as_posix()}
    append_line(folder / "ends.jsonl", json.dumps(end | {"time": round(time.time())}))


def forget_ends(folder: Path) -> None:
    """Forget how jobs ended when a sweep begins anew: those that failed wait again."""
    (folder / "ends.jsonl").unlink(missing_ok=True)


def status(folder: Path) -> list[Row]:
    """A row a job of a sweep's folder, or a row a run of a folder of runs. Raises UsageError."""
    if (folder / "jobs.jsonl").exists():
        return list(_rows_of_sweep(folder))
    runs = find_runs(folder)
    if runs:
        ends = {key: end for sweep in folder.glob("sweeps/*") for key, end in _ends(sweep).items()}
        return [_row_of_run(run, folder, ends) for run in runs]
    sweeps = sorted(folder.glob("sweeps/*/jobs.jsonl"))
    if sweeps:
        raise UsageError(
            f"{folder} holds no runs itself, but sweeps: `tape-arith status {sweeps[0].parent}`"
        )
    raise UsageError(f"{folder} holds neither a sweep nor runs: `tape-arith list` shows runs")


def is_active(rows: list[Row]) -> bool:
    """Whether anything runs, or waits for nothing that failed."""
    return any(
        row.state == "running" or (row.state == "waiting" and not row.reason) for row in rows
    )


def content(rows: list[Row]) -> dict[str, Any]:
    """The rows for `--json`: keys are stable."""
    return {"schema": 1, "jobs": [asdict(row) for row in rows]}


def as_text(rows: list[Row]) -> str:
    """A table for people, and the number of rows in each state."""
    lines = [["job", "state", "where", "step", "loss", "left", "log"]]
    for row in rows:
        step = "" if row.step is None else f"{row.step:,} of {row.steps:,}"
        loss = "" if row.loss is None else f"{row.loss:.4f}"
        left = "" if row.seconds_left is None else _clock(row.seconds_left)
        tail = [step, loss, left, row.log or row.reason or ""]
        lines.append([row.id, row.state, row.where or "", *tail])
    if not any(row.where for row in rows):
        for line in lines:
            del line[2]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    counts = [f"{sum(row.state == state for row in rows)} {state}" for state in STATES]
    return escape_control("\n".join([*table, "", ", ".join(counts)]))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


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
    done = "scored" if line.kind == "score" else "trained"
    row = _row(line.id, line.progress(), done, end)
    log = log_file(folder, line.id)
    job_state = read_state(log) if row.state in ("waiting", "running") else None
    remote = job_state is not None and job_state.state != "ended"
    if log.exists() and (remote or log.stat().st_mtime >= began):  # else of an earlier call
        row = replace(row, log=row.log or log.as_posix())
    return replace(row, where=str(job_state)) if remote else row


def _row_of_run(folder: RunFolder, root: Path, ends: Mapping[str, _End]) -> Row:
    name = folder.path.relative_to(root).as_posix()
    own = [end for key, end in ends.items() if f"{key.split('/', 1)[-1]}/".startswith(f"{name}/")]
    failure = next((end for end in own if end.failed), None)
    progress = folder.train_progress()
    scored = progress.done and folder.is_scored(folder.record())
    row = _row(name, progress, "scored" if scored else "trained", failure)
    if activity(folder.path) not in (None, "train"):
        return replace(row, state="running")
    return row


def _row(key: str, progress: Progress, done: str, end: _End | None) -> Row:
    facts = asdict(progress)
    reason = facts.pop("error")
    state = "running" if facts.pop("running") else "waiting"
    state = done if facts.pop("done") else state
    if reason is not None:
        return Row(key, "failed", reason=reason)
    if state == "waiting" and end is not None and end.failed:
        return Row(key, "failed", **facts, reason=end.reason, log=end.log)
    return Row(key, state, **facts)


def _ends(sweep: Path) -> dict[str, _End]:
    """The last end of each job; a line that is damaged, or cut short by a kill, is left out."""
    ends = {}
    file = sweep / "ends.jsonl"
    for line in read_bytes(file).decode(errors="replace").splitlines() if file.exists() else []:
        try:
            end = validated_json(line, _End)
        except InvalidValue:
            continue
        ends[end.id] = end
    return ends
