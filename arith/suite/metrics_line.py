"""A line of metrics.jsonl, read by one who believes nothing it has not checked. No torch here."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

_NUMBERS = ("loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "seconds")


def read_line(text: str) -> dict[str, Any]:
    """What the line says. Errors: ValueError, saying what is wrong, where training wrote no such
    line; what older versions did not write may be missing."""
    content = json.loads(text)
    if not isinstance(content, dict) or not _whole(content.get("step")):
        raise ValueError(f"a line without its step: {text[:40]}")
    for key in _NUMBERS:
        if key in content and not _number(content[key]):
            raise ValueError(f"{key} is no number: {text[:40]}")
    if not _share(content.get("exact_match"), missing=True):
        raise ValueError(f"exact_match is no share: {text[:40]}")
    for key, holds in (("small_grid", _small_grid), ("state", _state)):
        if content.get(key) is not None and not holds(content[key]):
            raise ValueError(f"{key} is not what training writes: {text[:40]}")
    return content


def _small_grid(value: object) -> bool:
    """As `arith.training.evaluation.SmallGrid.exact_match` gives it."""
    return (
        isinstance(value, Mapping)
        and _share(value.get("in_distribution"))
        and _share(value.get("out_of_distribution"), missing=True)
        and isinstance(value.get("by_length"), Mapping)
        and all(key.isdecimal() and _share(x) for key, x in value["by_length"].items())
    )


def _state(value: object) -> bool:
    """Names, and a number for each layer."""
    return isinstance(value, Mapping) and all(
        isinstance(numbers, list) and all(map(_number, numbers)) for numbers in value.values()
    )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _share(value: object, missing: bool = False) -> bool:
    if value is None:
        return missing
    return isinstance(value, int | float) and _number(value) and 0 <= value <= 1
