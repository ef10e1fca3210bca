"""The classes that an encoding is built from. Never imports torch."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple


class Classes(NamedTuple):
    """The classes of an encoding, with their options, before it is built.

    parts          parts of the encoding by name
    extrapolation  the change at test time
    model          a model in the place of decoder and encoding, which then has no parts
    """

    parts: Mapping[str, partial[Any]]
    extrapolation: partial[Any] | None = None
    model: partial[Any] | None = None
