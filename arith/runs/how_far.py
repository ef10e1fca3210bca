"""How far a training or a scoring is, from the files of its run. No torch here.

What counts as done is what a sweep would not do again: a grid of another budget is none.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Failure
from tape_arith.arith.runs import lock
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.grid import Grid


def training(folder: RunFolder, of: tuple[int, str] | None = None) -> tuple[str, dict[str, Any]]:
    """How far training is: its state, and what its metrics say. `of`: the steps and the hash of the
    config that the run is to have; one of another config is none."""
    if not folder.exists():
        return ("running" if lock.activity(folder.path) == "train" else "waiting"), {}
    try:
        record, metrics = folder.record(), folder.metrics()
    except Failure as error:
        return "failed", {"reason": str(error)}
    if of is not None and not _asked(record, of):
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
    if folder.finished() or (scored(folder, record) and not folder.unfinished()):
        return "trained", facts
    return ("running" if lock.activity(folder.path) == "train" else "waiting"), facts


def scoring(file: Path, of: tuple[int, str]) -> tuple[str, dict[str, Any]]:
    """How far the scoring of the grid in `file` is, in blocks. A grid of another run or budget
    counts as none."""
    state = "running" if lock.activity(file.parent) == f"score {file.name}" else "waiting"
    try:
        record = RunFolder(file.parent).record()
    except Failure:  # none, or its training's row tells
        return state, {}
    if not _asked(record, of):
        return state, {}
    try:
        grid = _grid(file, record)
    except Failure as error:
        return "failed", {"reason": str(error)}
    if grid is None:
        return state, {}
    if grid.complete:
        return "scored", {}
    return state, {"step": grid.blocks_done, "steps": grid.evaluation["problems_per_cell"]}


def _asked(record: RunRecord, of: tuple[int, str]) -> bool:
    """Whether a run has these steps, and a config of that hash, and what it depends on."""
    return (record.config.steps, record.config.sha256) == of and record.is_current


def _grid(file: Path, record: RunRecord) -> Grid | None:
    """What is there of a grid of that run, trained as it is now. Errors: Failure."""
    grid = grid_file.load(file) if file.exists() else None
    if grid is None or grid.budget != record.budget:
        return None
    own = (grid.encoding, grid.seed) == (record.encoding, record.seed)
    return grid if own else None


def scored(folder: RunFolder, record: RunRecord) -> bool:
    """Whether any grid of the run, trained as it is now, is complete."""
    for file in folder.path.glob("grid*.json"):
        with suppress(Failure):
            grid = _grid(file, record)
            if grid is not None and grid.complete:
                return True
    return False
