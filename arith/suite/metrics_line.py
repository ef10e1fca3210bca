"""Lines of metrics.jsonl, read by one who believes nothing it has not checked. No torch here."""

import json
from pathlib import Path
from typing import Any

from arith.checking import Wrong, mapping, number, whole
from arith.errors import Failure
from arith.reading import parse_json, read_text
from arith.schemas import sealed, unsealed

KIND = "metrics"
_NUMBERS = ("learning_rate", "gradient_norm", "tokens", "tokens_per_second", "seconds")
_MARKS = ("schema", "kind")


def line_of(content: dict[str, Any]) -> str:
    """The line that says `content`, without its end."""
    return json.dumps(sealed(content, KIND))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What the lines of a file say. Errors: Failure, naming it, where training wrote no such lines
    or not in this order."""
    lines: list[dict[str, Any]] = []
    written = read_text(path).removesuffix("\n")
    for place, text in enumerate(written.split("\n") if written else [], start=1):
        try:
            line = read_line(text)
            if lines and line["step"] <= lines[-1]["step"]:
                raise Wrong(f"step {line['step']} comes after step {lines[-1]['step']}")
        except ValueError as error:
            why = str(error).removeprefix("is corrupt: ")
            raise Failure(f"{path} is corrupt: line {place}: {why}") from error
        lines.append(line)
    return lines


def read_line(text: str) -> dict[str, Any]:
    """What the line says. Errors: ValueError, saying what is wrong, where training wrote no such
    line; what older versions did not write may be missing."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise Wrong("not an object")
    # Lines of before said neither their kind nor their schema.
    if any(mark in content for mark in (*_MARKS, "checksum")):
        content = unsealed(content, KIND)
    content = {key: value for key, value in content.items() if key not in _MARKS}
    whole(content.get("step"), "step")
    number(content.get("loss"), "loss")
    for key in _NUMBERS:
        if key in content:
            number(content[key], key, 0)
    if content.get("exact_match") is not None:
        number(content["exact_match"], "exact_match", 0, 1)
    if content.get("small_grid") is not None:
        _small_grid(mapping(content["small_grid"], "small_grid"))
    for name, values in mapping(content.get("state") or {}, "state").items():
        if not isinstance(values, list):
            raise Wrong(f"'state.{name[:40]}' must be numbers, one a layer")
        for value in values:
            number(value, f"state.{name[:40]}")
    return content


def _small_grid(grid: dict[str, Any]) -> None:
    """As `arith.training.evaluation.SmallGrid.exact_match` gives it."""
    number(grid.get("in_distribution"), "in_distribution", 0, 1)
    if grid.get("out_of_distribution") is not None:
        number(grid["out_of_distribution"], "out_of_distribution", 0, 1)
    elif "out_of_distribution" not in grid:
        raise Wrong("'out_of_distribution' is missing")
    for length, value in mapping(grid.get("by_length"), "by_length").items():
        if not (length.isascii() and length.isdecimal() and len(length) < 6):
            raise Wrong(f"{length[:40]!r} is no number of digits")
        number(value, f"by_length.{length}", 0, 1)
