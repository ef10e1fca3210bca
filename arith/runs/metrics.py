"""Lines of metrics.jsonl: a JSON object a line, in the order of the steps. No torch here."""

import json
from pathlib import Path
from typing import Annotated, Any

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
    """See `tape_arith.arith.training.metrics.Metrics`."""

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
