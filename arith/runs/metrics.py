"""Read metrics.jsonl, and send its lines to trackers.

The file has one JSON object per line, in the order of steps. It is the source of truth, so a
tracker that fails is reported once and then left out.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field

from tape_arith.arith.archives import on_disk
from tape_arith.arith.documents import Count, NonNegative, Part, Share, Text, validated
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.files import parse_json, read_text
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.runs.record import RunRecord


Line = Mapping[str, Any]
LOG_EVERY, EVALUATE_EVERY = 20, 100
"""Steps between two lines, and between two with evaluations; the last step has both."""


class _SmallGrid(Part):
    """Exact match on the small grid: see `SmallGrid.exact_match`."""

    in_distribution: Share
    out_of_distribution: Share | None
    by_length: dict[Annotated[str, Field(pattern="^[0-9]{1,5}$")], Share]


class _MetricsLine(Part):
    """One line of metrics.jsonl.

    loss           mean over the steps since the last line, in nats per scored token
    gradient_norm  norm of the gradient at the last step
    tokens         tokens so far, without padding
    exact_match    exact match on held-out problems of the trained lengths; None between evaluations
    state          measures of the encoding's state by name, one number per layer
    skipped        steps so far without an update, for a loss or gradient that was not finite

    Any other key holds a number: what `Trainer` adds to a line needs no declaration.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None] = Field(init=False)

    step: Count
    loss: float
    learning_rate: NonNegative
    gradient_norm: NonNegative
    tokens: Count
    tokens_per_second: NonNegative
    seconds: NonNegative
    exact_match: Share | None
    small_grid: _SmallGrid | None = None
    state: dict[Text, list[float]] | None = None
    skipped: Count = 0


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the valid lines, and a message for each invalid line.

    Ignores a last line without a line feed: training is still writing it, or was killed meanwhile.
    Raises Failure if the file cannot be read as text.
    """
    lines: list[dict[str, Any]] = []
    faults: list[str] = []
    *texts, _ = read_text(path).split("\n") if on_disk(path).exists() else [""]
    for number, text in enumerate(texts, start=1):
        try:
            line = parse_json(text)
            step = validated(line, _MetricsLine).step
            if lines and step <= lines[-1]["step"]:
                raise ValueError(f"step {step} comes after step {lines[-1]['step']}")
            lines.append(line)
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    return lines, faults


def last_evaluations(lines: Sequence[Line]) -> list[tuple[int, float]]:
    """Return step and exact match of the last five evaluations; [] for fewer than two.

    Exact match is on the small grid, out of distribution. The evaluations show how a result depends
    on the end of training. They select nothing: the result is the grid of the final weights.
    """
    grids = ((line["step"], line.get("small_grid")) for line in lines)
    points = [(step, grid["out_of_distribution"]) for step, grid in grids if grid]
    measured = [(step, share) for step, share in points if share is not None][-5:]
    return measured if len(measured) > 1 else []


class _Tracker(NamedTuple):
    log: Callable[[int, dict[str, float]], object]
    close: Callable[[], object]


def _tensorboard(folder: Path, record: "RunRecord", step: int) -> _Tracker:
    """Write event files in `folder`/tensorboard."""
    # Imported by name, because reading metrics must not import torch.
    module = import_module("torch.utils.tensorboard.writer")
    writer = module.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def log(step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return _Tracker(log, writer.close)


def _wandb(folder: Path, record: "RunRecord", step: int) -> _Tracker:
    """Log to Weights & Biases, offline unless WANDB_MODE says otherwise."""
    wandb = import_module("wandb")
    name = f"{record.preset}/{record.encoding}/seed-{record.seed}"
    # Every process that continues this run has the same id, so that wandb shows one run.
    identity = f"{name} {record.config.sha256} {folder.parent.absolute()}"
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "tape-arith"),
        name=name,
        id=hashlib.sha256(identity.encode()).hexdigest()[:16],
        resume="allow",
        mode=os.environ.get("WANDB_MODE", "offline"),
        dir=str(folder),
        config={"encoding": record.encoding, "seed": record.seed, **record.config.as_dict()},
        settings=wandb.Settings(console="off", silent=True, disable_git=True),
    )
    return _Tracker(lambda step, numbers: run.log(numbers, step=step), run.finish)


_TRACKERS: dict[str, Callable[[Path, "RunRecord", int], _Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
"""Trackers by the name of the package that each needs."""


def tracker_names() -> list[str]:
    """Return the names that --track takes."""
    return sorted(_TRACKERS)


def parse_trackers(text: str | None) -> tuple[str, ...]:
    """Parse "tensorboard,wandb". Raises UsageError for an unknown tracker or a missing package."""
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    for name in names:
        if name not in _TRACKERS:
            raise unknown("tracker", name, tracker_names())
        try:
            import_module(name)
        except ImportError as error:
            install = "pip install 'tape-arith[tracking]'"
            raise UsageError(f"--track {name} needs {name}: {install}") from error
    return names


@contextmanager
def tracked(
    names: Sequence[str], folder: Path, record: "RunRecord", step: int
) -> Iterator[Callable[[Line], None]]:
    """Open trackers for a run at `step`; yield a function that sends them a line.

    The first error of a tracker is reported on stderr and ends that tracker, never the run.
    """
    trackers: dict[str, _Tracker] = {}

    @contextmanager
    def guard(name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # other packages may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"note: {name} failed, the run continues without it ({reason})")
            if failed := trackers.pop(name, None):
                with suppress(Exception):
                    failed.close()

    def log(line: Line) -> None:
        numbers = dict(_numbers({key: line[key] for key in line if key != "step"}, ""))
        for name, tracker in list(trackers.items()):
            with guard(name):
                tracker.log(line["step"], numbers)

    for name in names:
        with guard(name):
            trackers[name] = _TRACKERS[name](folder, record, step)
    try:
        yield log
    finally:
        for name in list(trackers):
            with guard(name):
                trackers.pop(name).close()


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield each number inside a line with its path, as in "small_grid/by_length/3"."""
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            yield from _numbers(part, f"{path}/{key}" if path else str(key))
    elif value is not None:
        yield path, float(value)
