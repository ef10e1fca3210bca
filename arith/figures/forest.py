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
    PAGE_WIDTH,
    ROW,
    heights,
    label_rows,
    write_right,
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
    width = width or PAGE_WIDTH
    reference = next((row.panel for row in board.rows if row.panel.name == other), None)
    if reference is None:
        raise unknown("ranked encoding", other, [row.panel.name for row in board.rows])
    if not reference.ranked or len(reference.seeds) < 2:
        raise UsageError(f"{other} is not ranked or has one seed: compare with another encoding")
    effects = {
        row.panel.name: each
        for row in board.rows
        if row.panel.ranked
        and row.panel.first.extrapolation == reference.first.extrapolation
        and (each := effect(row.panel, reference)).welch
    }
    if not effects:
        raise UsageError(
            f"no other encoding is ranked with two seeds: nothing to compare {other} with"
        )
    shown = board.only([*effects])
    _, placed = heights(shown)
    known = [each.welch for each in effects.values() if each.welch]
    low = min(0.0, *(100 * each.difference for each in known))
    high = max(1.0, *(100 * each.difference for each in known))
    step = next((n for n in (1, 2, 5, 10, 20, 50) if (high - low) / n <= 6), 50)
    first, last = step * ((low - step / 2) // step), step * ceil((high + step / 2) / step)
    bottom = max(placed) + 0.6
    figure = style.page(
        width,
        bottom * ROW + 0.42,
        _note(board, other, cut=any(_cuts(each, first, last) for each in known)) * caption,
        [
            Line2D([], [], color=COLOUR, label="difference of the means", **_DIFFERENCE),
            Line2D([], [], color=COLOUR, label=f"its 95{NBSP}% interval (Welch)", **INTERVAL),
            Line2D([], [], color=COLOUR, label="ends of the interval paired by seed", **_PAIRED),
        ],
        2,
        LETTERS,
    )
    ax = figure.subplots()
    ax.set(xlim=(first, last), ylim=(bottom, 0))
    ax.set_xticks([first + step * n for n in range(round((last - first) / step) + 1)])
    ax.xaxis.set_major_formatter(lambda value, _: signed(value, 0))
    ax.set_xlabel(f"points out of distribution, from {board.label(other)}")
    ax.axvline(0, color="black", linewidth=0.7, zorder=1)
    label_rows(figure, shown, _COLUMNS)
    for y, row in placed.items():
        ax.axhline(y, color="#efefef", linewidth=0.5, zorder=0)
        test, pairs = effects[row.panel.name].welch, effects[row.panel.name].paired
        assert test is not None, "rows without a test are left out"
        write_right(ax, _COLUMNS["difference"], y, points(test), "black")
        write_right(ax, _COLUMNS["seeds"], y, str(len(row.panel.seeds)), "black")
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
