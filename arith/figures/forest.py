"""Differences from one encoding with their intervals: a forest plot for one column of a paper."""

from math import ceil
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFT, CARETRIGHT

from tape_arith.arith.compare.board import Board
from tape_arith.arith.compare.captions import NBSP, left_out, signed
from tape_arith.arith.compare.effects import effect, points
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.figures import style
from tape_arith.arith.figures.leaderboard import (
    COLOUR,
    INTERVAL,
    LETTERS,
    heights,
    rows_page,
    write_columns,
)
from tape_arith.arith.grids.statistics import Welch

_COLUMNS = {"difference": 52, "seeds": 72}
"""Columns of numbers, and how far right of the axes each ends, in points."""
_DIFFERENCE: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 3}
_PAIRED: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 5, "mew": 0.8}


@style.styled(LETTERS)
def compose(
    board: Board, other: str, *, width: float | None = None, caption: bool = True
) -> Figure:
    """Return the figure; its only axes has points from left to right and rows from the top.

    It has the encodings whose difference has an interval: ranked, with two seeds or more, and
    changed at test time as `other`, the encoding from which they differ, is changed or not.

    Raises UsageError if that is not ranked or has one seed, or if nothing is left.
    """
    reference = next((row.panel for row in board.rows if row.panel.name == other), None)
    if reference is None:
        raise unknown("ranked encoding", other, [row.panel.name for row in board.rows])
    if not reference.ranked or len(reference.seeds) < 2:
        raise UsageError(f"{other} is not ranked or has one seed: compare with another encoding")
    compared = {}
    for row in board.rows:
        is_like = row.panel.first.extrapolation == reference.first.extrapolation
        difference = effect(row.panel, reference)
        if row.panel.ranked and is_like and difference.welch:
            compared[row.panel.name] = difference.welch, difference.paired
    if not compared:
        raise UsageError(
            f"no other encoding is ranked with two seeds: nothing to compare {other} with"
        )
    shown = board.only([*compared])
    middles = [100 * test.difference for test, _ in compared.values()]
    low, high = min(0.0, *middles), max(1.0, *middles)
    step = next((n for n in (1, 2, 5, 10, 20, 50) if (high - low) / n <= 6), 50)
    first, last = step * ((low - step / 2) // step), step * ceil((high + step / 2) / step)
    signs = {
        "difference of the means": _DIFFERENCE,
        f"its 95{NBSP}% interval (Welch)": INTERVAL,
        "ends of the interval paired by seed": _PAIRED,
    }
    handles = [Line2D([], [], color=COLOUR, label=label, **look) for label, look in signs.items()]
    cut = any(_cuts(test, first, last) for test, _ in compared.values())
    note = _note(board, other, cut=cut) if caption else ""
    figure, ax = rows_page(shown, _COLUMNS, width, note, handles)
    ax.set_xlim(first, last)
    ax.set_xticks([first + step * n for n in range(round((last - first) / step) + 1)])
    ax.xaxis.set_major_formatter(lambda value, _: signed(value, 0))
    ax.set_xlabel(f"points out of distribution, from {board.label(other)}")
    ax.axvline(0, color="black", linewidth=0.7, zorder=1)
    for y, row in heights(shown)[1].items():
        ax.axhline(y, color="#efefef", linewidth=0.5, zorder=0)
        test, pairs = compared[row.panel.name]
        write_columns(ax, y, _COLUMNS, [points(test), str(len(row.panel.seeds))], "black")
        middle, arm = 100 * test.difference, 100 * test.half_width
        ax.plot([middle - arm, middle + arm], [y, y], **INTERVAL, color=COLOUR, zorder=2)
        ax.plot(middle, y, **_DIFFERENCE, color=COLOUR, zorder=4)
        for edge, marker in _cuts(test, first, last):
            ax.plot(edge, y, marker=marker, markersize=4, color=COLOUR, clip_on=False, zorder=4)
        if pairs is not None:
            ends = [100 * (pairs.difference + sign * pairs.half_width) for sign in (-1, 1)]
            ax.plot(ends, [y, y], **_PAIRED, color=COLOUR, zorder=3)
    return figure


def _cuts(test: Welch, first: float, last: float) -> list[tuple[float, int]]:
    """Return the ends of the scale beyond which the interval goes on, with their arrows."""
    middle, arm = 100 * test.difference, 100 * test.half_width
    left, right = (first, CARETLEFT), (last, CARETRIGHT)  # their tips are at the ends
    return [left] * (middle - arm < first) + [right] * (middle + arm > last)


def _note(board: Board, other: str, *, cut: bool) -> str:
    return " ".join(
        [
            board.source,
            f"Difference of each mean out of distribution from that of {board.label(other)}, in "
            "percentage points, where both have two seeds and converged; intervals are of one "
            "comparison each, not corrected for many.",
            *["Arrows: the interval goes on; the scale ends where the last difference lies."] * cut,
            *left_out(board.left_out),
        ]
    )
