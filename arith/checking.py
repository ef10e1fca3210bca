"""What a value in a file must be: one small function each, which gives it back or says what is
wrong. The reader of the file adds its name."""

import json
from math import isfinite
from typing import Any

from arith.reading import MOST_INTEGER

MOST_CHARACTERS = 10_000


class Wrong(ValueError):
    """What is wrong with a value, in words."""


def whole(value: object, name: str, low: int = 0, high: int = MOST_INTEGER) -> int:
    """A whole number from `low` to `high`. Errors: Wrong."""
    # type() and not isinstance(): true is no number of problems.
    if type(value) is not int or not low <= value <= high:
        raise Wrong(f"{name!r} must be an integer from {low} to {high}")
    return value


def number(
    value: object, name: str, low: float = float("-inf"), high: float = float("inf")
) -> float:
    """A finite number from `low` to `high`. Errors: Wrong."""
    if type(value) not in (int, float) or not isfinite(value) or not low <= value <= high:  # type: ignore[arg-type, operator]
        between = "" if low == float("-inf") else f" from {low:g}"
        between += "" if high == float("inf") else f" to {high:g}"
        raise Wrong(f"{name!r} must be a number{between}")
    return float(value)  # type: ignore[arg-type]


def text(value: object, name: str) -> str:
    """Text of at least one character, all of which can be shown. Errors: Wrong."""
    if not isinstance(value, str) or not value or len(value) > MOST_CHARACTERS:
        raise Wrong(f"{name!r} must be text")
    if not value.isprintable():
        raise Wrong(f"{name!r} must be text without control characters")
    return value


def mapping(value: object, name: str) -> dict[str, Any]:
    """An object without numbers that are not finite. Errors: Wrong."""
    if not isinstance(value, dict):
        raise Wrong(f"{name!r} must be an object")
    try:
        json.dumps(value, allow_nan=False)  # Python's parser lets NaN and Infinity pass
    except (ValueError, RecursionError) as error:
        raise Wrong(f"{name!r} is nested too deep, or holds a number that is not finite") from error
    return value


def digest(value: object, name: str) -> str:
    """A SHA-256 in hexadecimal digits. Errors: Wrong."""
    if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise Wrong(f"{name!r} must be a SHA-256")
    return value


def known_keys(content: dict[str, Any], needed: set[str], more: frozenset[str]) -> None:
    """That `content` has all `needed` keys, and beside `more` no other. Errors: Wrong."""
    odd = sorted((content.keys() - more) ^ needed)
    if odd:
        raise Wrong(f"{odd[0][:40]!r} is {'unknown' if odd[0] in content else 'missing'}")
