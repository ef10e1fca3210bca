"""What is asked of every encoding and every damage, in a time that one waits for."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(every: int, values: Iterable[Any]) -> list[Any]:
    """All of them, for a parameter of a test: the first of each `every` for `make test`, the others
    for `make test-slow`."""
    return [
        value if number % every == 0 else pytest.param(*_parts(value), marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
