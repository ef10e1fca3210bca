"""How far runs and sweeps are, from their files alone: nobody is asked who runs them. No torch."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tape_arith.arith.documents import Count, InvalidValue, Part, Text, validated_json
from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY, UsageError
from tape_arith.arith.files import append_line, read_bytes
from tape_arith.arith.runs import lock
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.how_far import scored, scoring, training
from tape_arith.arith.sweeps.jobs import log_file, read_jobs
from tape_arith.arith.sweeps.tickets import Ticket, read_ticket
from tape_arith.arith.terminal import escape_control

SCHEMA = 1
STATES = ("waiting", "running", "trained", "scored", "failed")
SECONDS_OF_QUIET = 60.0
"""For so long a sweep that was begun again may show nothing of what it does: processes start."""
_NO_FAILURE = (EXIT_DONE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED)


class _End(Part):
    """A line of ends.jsonl: how a job ended."""

    id: Text
    exit: Annotated[int, Field(ge=-1000, le=1000)]
    reason: str | None
    log: str | None
    time: Count


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
    """Why it failed; of one that waits, which failed one it waits for, so that it never runs."""
    where: str | None = None
    """What an engine elsewhere has of it: "slurm: running on n1"."""


def note_end(folder: Path, job: str, code: int, reason: str, log: Path | None) -> None:
    """Add how a job ended to a sweep's ends.jsonl: for people, never asked what is done."""
    line = {"id": job, "exit": code, "reason": reason, "log": log and log.as_posix()}
    append_line(folder / "ends.jsonl", json.dumps(line | {"time": round(time.time())}))


def status(place: Path) -> list[Row]:
    """Of a sweep's folder a row a job; of a folder of runs a row a run. Errors: UsageError."""
    if (place / "jobs.jsonl").exists():
        ends, jobs = _ends(place), list(read_jobs(place))
        return _blocked([_of_job(job, place, ends) for job in jobs], jobs)
    folders = find_runs(place)
    if not folders:
        sweeps = sorted(place.glob("sweeps/*/jobs.jsonl"))
        if sweeps:
            raise UsageError(
                f"{place} holds no runs itself, but sweeps: `tape-arith status {sweeps[0].parent}`"
            )
        raise UsageError(f"{place} holds neither a sweep nor runs: `tape-arith list` shows runs")
    ends = {key: end for sweep in place.glob("sweeps/*") for key, end in _ends(sweep).items()}
    return [_of_run(folder, place, ends) for folder in folders]


def may_change(place: Path, rows: Sequence[Row]) -> bool:
    """Whether to look again: something runs, or waits for nothing that failed; or a sweep has just
    been begun again and has not come to what failed before."""
    if any(row.state == "running" or (row.state == "waiting" and not row.reason) for row in rows):
        return True
    try:
        begun = (place / "jobs.jsonl").stat().st_mtime  # written anew whenever a sweep begins
        last = max(begun, (place / "ends.jsonl").stat().st_mtime)
    except OSError:
        return False
    ends = _ends(place)
    failed = [ends[row.id].get("time") for row in rows if row.state == "failed" and row.id in ends]
    before = any(isinstance(at, int | float) and at + 1 < begun for at in failed)
    return before and time.time() - last < SECONDS_OF_QUIET


def content(rows: list[Row]) -> dict[str, Any]:
    """For `--json`: keys are stable."""
    return {"schema": SCHEMA, "jobs": [asdict(row) for row in rows]}


def as_text(rows: list[Row]) -> str:
    """A table for people, and how many there are of each state."""
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


def _of_job(job: Mapping[str, Any], place: Path, ends: Mapping[str, Any]) -> Row:
    file = None if job["grid"] is None else Path(job["grid"])
    folder, of = RunFolder(Path(job["folder"])), (job["steps"], job["config_sha256"])
    if job["kind"] == "train":
        state, progress = training(folder, of)
    elif file is not None:
        state, progress = scoring(file, of)
    else:
        state, progress = "waiting", {}
        if ends.get(job["id"], {}).get("exit") == EXIT_DONE:
            state = "trained"
    log = log_file(place, job["id"])
    ticket = read_ticket(log) if state in ("waiting", "running") else None
    sent = ticket if ticket and ticket.state != "ended" else None
    row = Row(job["id"], state, **progress, where=str(sent) if sent else None)
    row = _replaced(row, log=_log(log, state, ends.get(job["id"]), sent))
    return _with_failure(row, ends)


def _log(log: Path, state: str, end: Mapping[str, Any] | None, sent: Ticket | None) -> str | None:
    """`log`, unless it is that of an earlier run of the job: what runs in the process of `sweep`
    has none."""
    if not log.exists():
        return None
    if state == "running" and sent is None:
        # Written as the sweep begins, before any job runs.
        listed = log.parent.parent / "jobs.jsonl"
        stale = not listed.exists() or log.stat().st_mtime < listed.stat().st_mtime
    elif end is None:
        stale = False
    else:  # done after that end, by another call
        stale = not end.get("log") or (state in ("trained", "scored") and end["exit"] != EXIT_DONE)
    return None if stale else log.as_posix()


def _blocked(rows: Sequence[Row], jobs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """`rows` with the reason why some wait for ever; each job stands after those it depends on."""
    failed = {row.id: row.id for row in rows if row.state == "failed"}
    result = []
    for row, job in zip(rows, jobs, strict=True):
        of = next((failed[key] for key in job.get("depends", []) if key in failed), None)
        if row.state == "waiting" and of is not None:
            failed[row.id] = of
            row = _replaced(row, reason=f"after {of} failed", log=None)
        result.append(row)
    return result


def _of_run(folder: RunFolder, place: Path, ends: Mapping[str, Any]) -> Row:
    state, progress = training(folder)
    name = folder.path.relative_to(place).as_posix()
    keys = [key for key in ends if f"{key.split('/', 1)[-1]}/".startswith(f"{name}/")]
    row = Row(name, state, **progress)
    working = lock.activity(folder.path)
    if working not in (None, "train"):
        row = _replaced(row, state="running")
    elif state == "trained" and scored(folder, folder.record()):
        row = _replaced(row, state="scored")
    logs = [(Path(ends[key]["log"]), ends[key]) for key in keys if ends[key].get("log")]
    told = (_log(log, row.state, end, None) for log, end in logs)
    row = _replaced(row, log=next(filter(None, told), None))
    for key in keys:
        row = _with_failure(row, ends, key)
    return row


def _with_failure(row: Row, ends: Mapping[str, Any], key: str | None = None) -> Row:
    """`row` as failed, where its last end was a failure and nothing came after it."""
    end = ends.get(key or row.id, {})
    if row.state != "waiting" or end.get("exit", 0) in _NO_FAILURE or end.get("exit", 0) < 0:
        return row
    return _replaced(row, state="failed", reason=end.get("reason"), log=end.get("log") or row.log)


def _replaced(row: Row, **changes: Any) -> Row:
    return Row(**{**asdict(row), **changes})


def _ends(sweep: Path) -> dict[str, dict[str, Any]]:
    """The last end of each job; a line that is damaged, or that a kill cut short, is none."""
    return {line["id"]: line for line in _lines(sweep / "ends.jsonl")}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if not file.exists():
        return
    for written in read_bytes(file).decode(errors="replace").splitlines():
        try:
            yield validated_json(written, _End).model_dump()
        except InvalidValue:
            continue
