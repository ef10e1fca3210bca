"""Errors in answers, drawn: exact match by carry chain, places and kinds of first errors."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.figures.captions import NBSP
from tape_arith.arith.figures.style import (
    LETTERS,
    STYLE,
    figure_format,
    finish,
    page,
    percent_tick,
    save,
    scale_end,
    series_styles,
)
from tape_arith.arith.scoring.grid import REGION_WORDS, Region
from tape_arith.arith.scoring.statistics import wilson
from tape_arith.arith.studies.errors_data import KINDS, REGIONS, ErrorStudy

# Lengths in one hue, digits in another, so that the two halves of a bar are seen first.
_COLOURS = dict(
    zip(KINDS, ("#b35806", "#f1a340", "#053061", "#4393c3", "#c6dbef", "#999999"), strict=True)
)
_FEWEST = 50
"""The fewest answers, all seeds together, of which the figure shows a share; the table has all. If
no chain has as many, the length with most answers is drawn."""
_LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0, "markeredgewidth": 0.4}


def draw(study: ErrorStudy, path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of `path`.

    Raises UsageError for another ending, Failure if the disk refuses.
    """
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(study), path, kind)


def compose(study: ErrorStudy) -> Figure:
    """Draw exact match by carry chain, a panel a region; below, places and kinds of the first
    errors of the last region."""
    last, styles = study.regions[-1], series_styles(study.pooled)
    handles = [Line2D([], [], label=name, **style, **_LINE) for name, style in styles.items()]
    lower = max(2.2, 0.3 * len(styles) + 0.8)
    figure = page(6.0, 2.0 + lower, _note(study), handles)
    upper_left, upper_right, places, kinds = figure.subplots(2, 2, height_ratios=(2.0, lower)).flat
    for ax, region in zip((upper_left, upper_right), study.regions, strict=False):
        _draw_chains(ax, study, region)
        ax.set_xlabel("length of the longest carry chain")
        finish(ax, f"exact, {REGION_WORDS[region]}")
    if len(study.regions) == 1:
        upper_right.remove()
    _draw_places(places, study, last)
    places.set_xlabel("place of the first wrong token (0: least significant)")
    finish(places, f"first error, {REGION_WORDS[last]}")
    _draw_kinds(kinds, study, last)
    kinds.set_xlabel("share of wrong answers")
    finish(kinds, f"kind of the first error, {REGION_WORDS[last]}", grid="x")
    return figure


def _draw_chains(ax: Axes, study: ErrorStudy, region: Region) -> None:
    """Draw exact match by length of the longest chain with Wilson's intervals, the encodings side
    by side so that no interval hides another."""
    row, top = REGIONS.index(region), 0.0
    for number, (name, style) in enumerate(series_styles(study.pooled).items()):
        total, exact = study.pooled[name].problems[row], study.pooled[name].exact[row]
        lengths = np.flatnonzero(total >= min(_FEWEST, total.max()))
        low, high = wilson(exact[lengths], total[lengths])
        x = lengths + 0.4 * ((number + 0.5) / len(study.pooled) - 0.5)
        ax.plot(x, exact[lengths] / total[lengths], zorder=3, clip_on=False, **style, **_LINE)
        ax.vlines(x, low, high, color=style["color"], linewidth=0.7, zorder=2)
        top = max(top, *high)
    ax.set_ylim(0, scale_end(top))
    ax.yaxis.set_major_formatter(percent_tick)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_places(ax: Axes, study: ErrorStudy, region: Region) -> None:
    """Draw the share of wrong answers at each place, up to the last one with any; a dashed line
    follows the last place of trained operands."""
    row, last = REGIONS.index(region), study.trained_digits
    for name, style in series_styles(study.pooled).items():
        wrong = study.pooled[name].first_wrong[row]
        if wrong.any():
            places = np.arange(wrong.nonzero()[0].max() + 1)
            last = max(last, int(places[-1]))
            shares = wrong[: len(places)] / wrong.sum()
            ax.plot(places, shares, zorder=3, clip_on=False, **style, **_LINE)
    ax.axvline(study.trained_digits - 0.5, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    ax.set_xlim(-0.4, last + 0.4)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(percent_tick)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_kinds(ax: Axes, study: ErrorStudy, region: Region) -> None:
    """Draw a bar an encoding, the first on top: the kinds of its first errors."""
    for number, (name, counts) in enumerate(study.pooled.items()):
        wrong, left = counts.wrong(region), 0.0
        for kind, colour in _COLOURS.items():
            share = counts.of_kinds(region, kind) / max(wrong, 1)
            ax.barh(number, share, left=left, height=0.5, color=colour, linewidth=0)
            left += share
        # Above the bar, where a name with many options has room.
        ax.text(0.01, number - 0.3, f"{name}, {wrong:,} wrong", va="bottom", fontsize=LETTERS - 0.5)
    ax.set_yticks([])
    ax.set(xlim=(0, 1), ylim=(len(study.pooled) - 0.6, -0.75))
    ax.xaxis.set_major_formatter(percent_tick)
    ax.legend(
        handles=[Patch(color=_COLOURS[kind], label=label) for kind, label in KINDS.items()],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.34 / (0.3 * max(4, len(study.pooled)))),
        ncols=3,
        frameon=False,
        fontsize=LETTERS,
        handlelength=0.9,
        handletextpad=0.4,
        columnspacing=0.9,
        labelspacing=0.3,
        borderpad=0.0,
        borderaxespad=0.0,
    )


def _note(study: ErrorStudy) -> str:
    pooled = any(len(seeds) > 1 for seeds in study.seeds.values())
    counts = "counts that pool seeds on the same problems, so they are too narrow"
    return (
        "Answers decoded greedily up to their first error. Bars on exact match: Wilson's 95"
        f"{NBSP}% intervals over {counts if pooled else 'problems'}; chains of a length with fewer "
        f"than {_FEWEST} answers are in the table alone, and each scale has its own end. Dashed: "
        "to its left the places that trained operands have. A lost last carry ends too early, an "
        "invented one does not end; one less and one more, modulo 10, are what a lost or invented "
        f"carry leaves; by chance two of nine wrong digits are off by one. {study.source}"
    )
