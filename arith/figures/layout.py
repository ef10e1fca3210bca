"""How large the panels of a heatmap are, and what stands above them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tape_arith.arith.compare import captions
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.axes import REGION_WORDS, Numbers, Region

_NUM_MEANS: Mapping[Numbers, int] = {"none": 0, "out": 1, "all": len(captions.MEANS)}
_SHORT_LABELS: Mapping[Region, str] = {
    "out_of_distribution": "out",
    "in_distribution": "in",
    "all_cells": "all",
}
SHORT_WORDS = (
    "",
    "out: mean out of distribution",
    "out, in: means out of and in distribution",
    "out, in, all: means out of and in distribution, over all cells",
)
"""What the short labels stand for, by their number."""
LINE = 1.28
"""Height of a line of text above a panel, in multiples of the letter size."""
GAP = 0.16
"""Space between two panels, in inches."""
_SMALLEST, _LARGEST = 0.75, 2.6
"""Least and greatest side of a panel, in inches."""
_LONGEST = 9.6
"""Greatest height of all rows of panels, in inches, unless columns are given."""


@dataclass(frozen=True)
class Looks:
    """What a figure of grids shows besides them, and in which form."""

    width: float | None = None
    """Of the page, in inches."""
    columns: int | None = None
    caption: bool = True
    legend: bool = True
    difference: bool = True
    """Whether two encodings have a third panel, their difference."""
    numbers: Numbers = "all"
    font: str = ""
    """A font or family in place of matplotlib's; "" for that."""
    vmax: float = 100.0
    """Where the scale of exact match ends, in percent."""


class Layout(NamedTuple):
    """`columns` x `rows` square panels on a page; lengths are in inches, `letters` in points."""

    width: float
    columns: int
    rows: int
    side: float
    compared: bool
    """Whether the last panel is the difference of two encodings."""
    bars_below: bool
    """Whether colour bars are below the panels, not to their right."""
    numbers: Numbers
    marked: bool
    """Whether a line for seeds and marks is above panels."""

    @property
    def letters(self) -> float:
        """Return the size of letters; above larger panels they are larger."""
        return float(np.clip(5.2 + 2 * (self.side - 0.95), 5.2, 7.0))

    @property
    def brief(self) -> bool:
        """Tell whether panels are so small that their means have short names."""
        return self.side < 1.1

    @property
    def means(self) -> Mapping[Region, str]:
        """Return the label of each mean that is written above a panel."""
        # Many rows of small panels have no room for all cells.
        number = min(_NUM_MEANS[self.numbers], 2 if self.brief and self.rows > 3 else 3)
        labels = _SHORT_LABELS if self.brief else REGION_WORDS
        return {region: labels[region] for region in captions.MEANS[:number]}

    @property
    def height(self) -> float:
        """Return the height of all rows: panels, the text above them, the labels below."""
        above = (6 + LINE * self.letters * (len(self.means) + 1 + self.marked)) / 72
        return self.rows * (self.side + above + 0.1) + (0.5 if self.bars_below else 0.17)


def layout(count: int, looks: Looks, *, marked: bool = True) -> Layout:
    """Return the layout for `count` encodings; two may get a third panel, for their difference.

    Raises UsageError for panels that do not fit the width of the page.
    """
    compared = count == 2 and looks.difference
    squares = count + compared
    page = looks.width or {1: 3.95, 2: 6.9 if compared else 5.5}.get(count, 7.3)
    bars_below = count > 1 and page < 4.5
    room = page - (0.45 if bars_below else 1.0 + 0.7 * compared)

    def of(columns: int) -> Layout:
        side = min(_LARGEST, (room - GAP * (columns - 1)) / columns)
        rows = -(-squares // columns)
        return Layout(page, columns, rows, side, compared, bars_below, looks.numbers, marked)

    if looks.columns is not None:
        place = of(min(looks.columns, squares))
        if place.side < _SMALLEST:
            raise UsageError(
                f"{looks.columns} columns do not fit {page:g} inches: give fewer --columns"
            )
        return place
    most = min(squares, 3 if compared else max(1, round(room / (1.05 if count > 12 else 1.55))))
    fewer = most if compared or count > 12 else max(1, most - 1)
    # Prefer the fewest empty places in the last row, then the most columns.
    best = min(fewer, most, key=lambda columns: (-squares % columns, -columns))
    while of(best).height > _LONGEST and of(best + 1).side > _SMALLEST:
        best += 1
    if of(best).side < _SMALLEST:
        raise UsageError(f"{best} panels do not fit {page:g} inches: give a larger --width")
    return of(best)
