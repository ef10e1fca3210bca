"""How far runs and sweeps are, from their files alone: nobody is asked who runs them. No torch."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arith.checking import Wrong, mapping, text, whole
from arith.errors import Failure, UsageError
from arith.files import append_line
from arith.plain import plain
from arith.reading import parse_json, read_bytes
from arith.schemas import sealed, unsealed
from arith.scoring import grid_file
from arith.scoring.shards import Shard
from arith.suite import lock
from arith.suite.engines.engine import EXIT_AGAIN, EXIT_DONE, EXIT_INTERRUPTED, EXIT_PARTLY
from arith.suite.finding import find_runs
from arith.suite.folders import RunFolder
from arith.suite.plan import log_file, read_jobs
from arith.suite.tickets import read_ticket

SCHEMA = 1
STATES = ("waiting", "running", "trained", "scored", "failed")
_NO_FAILURE = (EXIT_DONE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED)


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
    """Why it failed."""
    where: str | None = None
    """What an engine elsewhere has of it: "slurm: running on n1"."""


def note_end(folder: Path, job: str, code: int, reason: str, log: Path | None) -> None:
    """Add how a job ended to a sweep's ends.jsonl: for people, never asked what is done."""
    line = {"id": job, "exit": code, "reason": reason, "log": log and log.as_posix()}
    document = sealed(line | {"time": round(time.time())}, "end")
    append_line(folder / "ends.jsonl", json.dumps(document))


def status(place: Path) -> list[Row]:
    """Of a sweep's folder a row a job; of a folder of runs a row a run. Errors: UsageError."""
    if (place / "jobs.jsonl").exists():
        ends = _ends(place)
        return [_of_job(job, place, ends) for job in read_jobs(place)]
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
    return plain("\n".join([*table, "", ", ".join(counts)]))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _of_job(job: Mapping[str, Any], place: Path, ends: Mapping[str, Any]) -> Row:
    file = None if job["grid"] is None else Path(job["grid"])
    log = log_file(place, job["id"])
    facts: dict[str, Any] = {"log": log.as_posix() if log.exists() else None}
    folder = RunFolder(Path(job["folder"]))
    if job["kind"] == "train":
        state, progress = _training(folder, (job["steps"], job["config_sha256"]))
    elif file is not None:
        whole = folder.path.parents[2] / file.name if job.get("shard") else file
        state, progress = _scoring(folder, file, whole, job.get("shard"))
    else:
        state, progress = "waiting", {}
        if ends.get(job["id"], {}).get("exit") == EXIT_DONE:
            state = "trained"
    ticket = read_ticket(log) if state in ("waiting", "running") else None
    facts["where"] = str(ticket) if ticket and ticket.state != "ended" else None
    return _with_failure(Row(job["id"], state, **progress, **facts), ends)


def _of_run(folder: RunFolder, place: Path, ends: Mapping[str, Any]) -> Row:
    state, progress = _training(folder)
    name = folder.path.relative_to(place).as_posix()
    keys = [key for key in ends if f"{key.split('/', 1)[-1]}/".startswith(f"{name}/")]
    log = next((ends[key]["log"] for key in keys if ends[key].get("log")), None)
    row = Row(name, state, **progress, log=log)
    working = lock.work(folder.path)
    if working not in (None, "train") or any(
        lock.holder(shard.parent) for shard in folder.path.glob(f"shards/*/*/{lock.NAME}")
    ):
        row = _replaced(row, state="running")
    elif state == "trained" and any(map(_complete, folder.path.glob("grid*.json"))):
        row = _replaced(row, state="scored")
    for key in keys:
        row = _with_failure(row, ends, key)
    return row


def _training(folder: RunFolder, of: tuple[int, str] | None = None) -> tuple[str, dict[str, Any]]:
    """How far training is: its state, and what its metrics say. `of`: the steps and the hash of the
    config that the run is to have; one of another config is none."""
    if not folder.exists():
        return ("running" if lock.work(folder.path) == "train" else "waiting"), {}
    try:
        record, metrics = folder.record(), folder.metrics()
    except Failure as error:
        return "failed", {"reason": str(error)}
    if of not in (None, (record.config.steps, record.config.sha256)):
        return "waiting", {}
    step, steps = 0, record.config.steps
    facts: dict[str, Any] = {"step": step, "steps": steps}
    if metrics:
        last = metrics[-1]
        step = last["step"]
        facts |= {"step": step, "loss": last.get("loss")}
        before = metrics[-2] if len(metrics) > 1 else {"step": 0, "seconds": 0.0}
        if step > before["step"] and "seconds" in last and step < steps:
            pace = (last["seconds"] - before["seconds"]) / (step - before["step"])
            facts["seconds_left"] = round(pace * (steps - step), 1)
    scored_without_weights = any(map(_complete, folder.path.glob("grid*.json")))
    if folder.finished() or (scored_without_weights and not folder.unfinished()):
        return "trained", facts
    return ("running" if lock.work(folder.path) == "train" else "waiting"), facts


def _scoring(
    folder: RunFolder, file: Path, whole: Path, shard: str | None
) -> tuple[str, dict[str, Any]]:
    """How far the scoring of `file`, which is `whole` or part of it, is: counted in blocks."""
    if _complete(whole):
        return "scored", {}
    facts: dict[str, Any] = {}
    if file.exists():
        try:
            grid = grid_file.load(file)
        except Failure as error:
            return "failed", {"reason": str(error)}
        blocks = grid.evaluation["problems_per_cell"]
        if shard is not None:
            part = Shard.parse(shard)
            blocks = len(part.blocks(grid))
            if part.complete(grid):
                return "scored", {"step": blocks, "steps": blocks}
        facts = {"step": grid.blocks_done, "steps": blocks}
    return ("running" if lock.work(folder.path) == file.name else "waiting"), facts


def _complete(file: Path) -> bool:
    try:
        return file.exists() and grid_file.load(file).complete
    except Failure:
        return False


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
            line = mapping(parse_json(written), "a line")
            if line.keys() & {"schema", "kind", "checksum"}:  # lines of before said none of it
                line = unsealed(line, "end")
            text(line.get("id"), "id")
            whole(line.get("exit"), "exit", -1000, 1000)
            for key in ("reason", "log"):
                if not isinstance(line.get(key), str | None):
                    raise Wrong(f"{key!r} must be text")
        except ValueError:
            continue
        yield line
