"""The colour, dashes and marker of an encoding: the same in every figure and on every page.

They follow from its name alone, so that a new encoding needs no entry anywhere.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from itertools import product
from typing import Any, NamedTuple

_COLOURS = (
    *("#55bb99", "#6677bb", "#2020f0", "#dd77ee"),
    *("#ee8800", "#8800aa", "#446611", "#dd0066"),
)
"""Eight colours that readers with protanopia, deuteranopia and tritanopia tell apart too, and that
can be read on light and on dark pages."""
_MARKERS = "osD^vPX*"
_DASHES: tuple[tuple[float, ...], ...] = ((), (1, 1.1), (4, 1.4), (5, 1.2, 1, 1.2))
"""Lengths of dashes and gaps, in multiples of the line's width; () is a solid line."""
_SALT = b"12019875"
"""With this salt the encodings that are drawn most often have eight colours, and those that share
one differ in dashes; another salt gives every encoding another look."""
_SPACING = 0.2
"""Space between two markers of a line, as a share of the panel's diagonal."""


class Look(NamedTuple):
    """A colour and a sign: its marker, and its dashes, which every fourth sign shares."""

    number: int
    sign: int

    @property
    def colour(self) -> str:
        return _COLOURS[self.number]

    @property
    def dashes(self) -> tuple[float, ...]:
        return _DASHES[self.sign % len(_DASHES)]

    @property
    def points(self) -> dict[str, Any]:
        """Return what matplotlib draws points with."""
        return {"color": self.colour, "marker": _MARKERS[self.sign]}

    @property
    def line(self) -> dict[str, Any]:
        """Return what matplotlib draws a line with; markers of several lines stand apart."""
        start = _SPACING * self.sign / len(_MARKERS)
        return self.points | {
            "linestyle": (0, self.dashes or None),
            "linewidth": 1.0,
            "markersize": 2.8,
            "markeredgewidth": 0.0,
            "markevery": (start, _SPACING),
        }


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each encoding of a figure, in the order of `names`.

    A variant, such as `fire:init_l=512` or `rope+yarn`, has the colour of its encoding. Where two
    look the same, the one with the longer name takes the next dashes of its colour that are free;
    up to 32 differ in colour or dashes, up to 64 in colour or marker.

    >>> rope, yarn = looks_of(["rope", "rope+yarn"]).values()
    >>> rope.colour == yarn.colour, rope.dashes == yarn.dashes
    (True, False)
    """
    names = list(dict.fromkeys(names))
    taken: dict[str, Look] = {}
    for name in sorted(names, key=lambda name: (name != _encoding(name), len(name), name)):
        number = _hash(_encoding(name))[0] % len(_COLOURS)
        sign = _hash(name)[1] % len(_MARKERS)
        choices = [
            Look((number + more) % len(_COLOURS), (sign + other) % len(_MARKERS))
            for more, other in product(range(len(_COLOURS)), range(len(_MARKERS)))
        ]
        free = [look for look in choices if look not in taken.values()]
        lines = {(look.colour, look.dashes) for look in taken.values()}
        distinct = [look for look in free if (look.colour, look.dashes) not in lines]
        taken[name] = (distinct or free or choices)[0]
    return {name: taken[name] for name in names}


def _encoding(name: str) -> str:
    """Return the encoding of which `name` is a variant."""
    return re.split("[:+@,]", name)[0]


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), salt=_SALT, digest_size=2).digest()
