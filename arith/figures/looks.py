"""How lines of many encodings are told apart, and how far a scale of shares goes."""

from collections.abc import Iterable
from typing import Any

import seaborn as sns

LINES: tuple[Any, ...] = ("-", (0, (4, 1.4)), (0, (1, 1.1)), (0, (5, 1.2, 1, 1.2)))
"""Solid, dashed, dotted, dash-dotted."""
BOUNDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Where a scale of shares may end."""


def bound(share: float) -> float:
    """Where a scale ends that has `share` (0..1) on it.

    >>> bound(0.13), bound(0.6)
    (0.2, 0.6)
    """
    return next(end for end in BOUNDS if share <= end)


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each. Neighbours differ in both, as some of the ten colours are near
    to each other; of forty no two look alike.

    >>> [look["linestyle"] for look in looks(map(str, range(5))).values()]
    ['-', (0, (4, 1.4)), (0, (1, 1.1)), (0, (5, 1.2, 1, 1.2)), '-']
    >>> len({str(look) for look in looks(map(str, range(40))).values()})
    40
    """
    palette = sns.color_palette("colorblind")
    return {
        name: {
            "color": palette[number % len(palette)],
            "linestyle": LINES[(number + number // len(palette)) % len(LINES)],
        }
        for number, name in enumerate(names)
    }
