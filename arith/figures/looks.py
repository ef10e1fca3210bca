"""How lines of many encodings are told apart."""

from collections.abc import Iterable
from typing import Any

import seaborn as sns

LINES: tuple[Any, ...] = ("-", (0, (4, 1.4)), (0, (1, 1.1)), (0, (5, 1.2, 1, 1.2)))
"""Solid, dashed, dotted, dash-dotted."""


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each: ten colours, then the same ten in each other style, so that of
    forty no two look alike.

    >>> [look["linestyle"] for look in looks(map(str, range(12))).values()][8:]
    ['-', '-', (0, (4, 1.4)), (0, (4, 1.4))]
    """
    palette = sns.color_palette("colorblind")
    return {
        name: {
            "color": palette[number % len(palette)],
            "linestyle": LINES[number // len(palette) % len(LINES)],
        }
        for number, name in enumerate(names)
    }
