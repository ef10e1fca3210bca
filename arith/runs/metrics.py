"""metrics.jsonl: one JSON object a line, in the order of the steps, and the curves in it.

Never imports torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Annotated, Any, Literal

from pydantic import Field

from tape_arith.arith.documents import (
    Count,
    InvalidValue,
    NonNegative,
    Part,
    Share,
    Text,
    validated,
)
from tape_arith.arith.files import parse_json, read_text

CUT_SHORT = "the last line was cut short"
"""By a kill, or because a training is writing it."""


class _SmallGrid(Part):
    """Exact match on the small grid: see `SmallGrid.exact_match`."""

    in_distribution: Share
    out_of_distribution: Share | None
    by_length: dict[Annotated[str, Field(pattern="^[0-9]{1,5}$")], Share]


class _MetricsLine(Part):
    """See `tape_arith.arith.training.evaluation.Metrics`."""

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


def line_of(content: dict[str, Any]) -> str:
    """Return the line that says `content`, without its end."""
    return json.dumps(content, allow_nan=False)


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the content of each line, and what is wrong with those that are left out.

    Raises Failure if the file cannot be read as text.
    """
    *whole, rest = read_text(path).split("\n")
    lines: list[dict[str, Any]] = []
    faults = []
    for number, text in enumerate(whole, start=1):
        try:
            line = parse_json(text)
            step = validated(line, _MetricsLine).step
            if lines and step <= lines[-1]["step"]:
                raise InvalidValue(f"step {step} comes after step {lines[-1]['step']}")
            lines.append(line)
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    return lines, [*faults, CUT_SHORT] if rest else faults


LAST_STATES = 5

Line = Mapping[str, Any]
Region = Literal["in_distribution", "out_of_distribution"]


@dataclass(frozen=True)
class LastStates:
    """Exact match on the small grid, 0..1, of a run's last saved states, the final one included.

    It tells how much a result depends on when the run stopped. Nothing is selected by it: what
    counts is the final state's own grid.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def range(self) -> float:
        """From the lowest to the highest."""
        return max(self.values) - min(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample (n - 1)."""
        return stdev(self.values)


def last_states(
    lines: Sequence[Line], region: Region = "out_of_distribution", count: int = LAST_STATES
) -> LastStates | None:
    """Of the last `count` states that were saved, each of which was evaluated; of fewer where a run
    has fewer. None where fewer than two have a small grid of `region`."""
    found = curve(lines, region)[-count:]
    if len(found) < 2:
        return None
    steps, values = zip(*found, strict=True)
    return LastStates(steps, values)


def curve(lines: Sequence[Line], region: Region) -> list[tuple[int, float]]:
    """(step, exact match on the small grid) at each evaluation."""
    found = ((line["step"], line.get("small_grid")) for line in lines)
    return [(step, grid[region]) for step, grid in found if grid and grid[region] is not None]


def by_length(lines: Sequence[Line]) -> dict[int, list[tuple[int, float]]]:
    """The learning of each length: by digits of the longer operand, (step, exact match)."""
    curves: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        for length, value in (line.get("small_grid") or {}).get("by_length", {}).items():
            curves.setdefault(int(length), []).append((line["step"], value))
    return curves


def states(lines: Sequence[Line]) -> dict[str, list[tuple[int, list[float]]]]:
    """What an encoding measures of its state, by name: (step, a number for each layer)."""
    curves: dict[str, list[tuple[int, list[float]]]] = {}
    for line in lines:
        for name, values in (line.get("state") or {}).items():
            curves.setdefault(name, []).append((line["step"], values))
    return curves
