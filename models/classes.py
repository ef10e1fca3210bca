"""The classes that an encoding is built from. Never imports torch."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple


class Classes(NamedTuple):
    """An encoding before it is built: classes with their options.

    parts          each part of the encoding, by its name
    extrapolation  the change at test time
    """

    parts: Mapping[str, partial[Any]]
    extrapolation: partial[Any] | None = None
