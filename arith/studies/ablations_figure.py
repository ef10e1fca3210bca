"""Ablations, drawn: each beside the encoding it is taken from, its seeds as points."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tape_arith.arith.figures.captions import NBSP, Panel, source
from tape_arith.arith.figures.leaderboard import COLOUR, NOT_RANKED, draw_seeds, seed_signs
from tape_arith.arith.figures.style import GREY, LETTERS, STYLE, figure_format, finish, page, save
from tape_arith.arith.scoring.regions import REGION_WORDS, Region
from tape_arith.arith.studies.ablations_table import Family, Member, points

ROW = 0.15
"""Inches."""
PANELS: tuple[Region, ...] = ("in_distribution", "out_of_distribution")
FIRST: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": (0, (3, 2))}


def draw(families: Sequence[Family], panels: Sequence[Panel], path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending. `panels` are the grids that
    `families` were made of. Raises UsageError for another ending, Failure if the disk refuses."""
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(families, panels), path, kind)


def compose(families: Sequence[Family], panels: Sequence[Panel]) -> Figure:
    """The figure before it is written: a panel in distribution, one out of it, each with percent
    across and rows down; the differences stand beside the second."""
    rows = list(_rows(families))
    height = rows[-1][0] + 1.0
    figure = page(5.5, ROW * height + 0.5, _note(families, panels), _handles(families), 3)
    inside, outside = figure.subplots(1, 2)
    for ax, region in zip((inside, outside), PANELS, strict=True):
        _means_of_unchanged(ax, families, region)
        values = [value for y, member in rows for value in _draw_member(ax, y, member, region)]
        low, high = min(values, default=0.0), max(values, default=100.0)
        room = max(0.04 * (high - low), 0.02)
        ax.set(xlim=(max(low, 0) - room, min(high, 100) + room), ylim=(height - 0.3, -0.9))
        ax.set_xlabel(f"exact match {REGION_WORDS[region]},{NBSP}%")
        ax.set_yticks([])
        ax.locator_params(axis="x", nbins=5)
        finish(ax, grid="x")
        ax.spines.left.set_visible(False)
    differences: Any = outside.secondary_yaxis("right")
    differences.spines.right.set_visible(False)
    changed = [(y, member) for y, member in rows if not member.unchanged]
    _row_labels(inside, [(y, member.label, member) for y, member in rows])
    _row_labels(
        differences,
        [(-0.5, "difference", None)] * bool(changed)
        + [(y, points(member), member) for y, member in changed],
    )
    return figure


def _rows(families: Sequence[Family]) -> Iterator[tuple[float, Member]]:
    """The height of each row, families half a row apart."""
    y = 0.0
    for family in families:
        for member in family.members:
            yield y, member
            y += 1
        y += 0.5


def _row_labels(axis: Any, labels: Sequence[tuple[float, str, Member | None]]) -> None:
    axis.set_yticks([y for y, _, _ in labels], [text for _, text, _ in labels])
    axis.tick_params(axis="y", length=0, labelsize=LETTERS)
    for label, (_, text, member) in zip(axis.get_yticklabels(), labels, strict=True):
        if member is not None and member.unchanged and text == member.label:
            label.set_fontweight("bold")
        if member is not None and member.row.mark is not None:
            label.set_color(NOT_RANKED)


def _means_of_unchanged(ax: Axes, families: Sequence[Family], region: Region) -> None:
    """A line at the mean of each family's unchanged encoding through its rows."""
    y = 0.0
    for family in families:
        mean, rows = family.members[0].row.means[region], len(family.members)
        if mean is not None and rows > 1:
            ax.vlines(100 * mean.mean, y - 0.5, y + rows - 0.5, zorder=1, **FIRST)
        y += rows + 0.5


def _draw_member(ax: Axes, y: float, member: Member, region: Region) -> list[float]:
    """Draw seeds as points over the interval of their mean; returns what must be on the axis."""
    row = member.row
    ax.axhline(y, color="#efefef", linewidth=0.5, zorder=0)
    draw_seeds(ax, y, row, region, COLOUR if row.mark is None else NOT_RANKED)
    values = [100 * value for value in row.values[region] if value is not None]
    mean = row.means[region]
    if mean is None or len(row.seeds) == 1:
        return values
    return [*values, 100 * mean.low, 100 * mean.high]


def _handles(families: Sequence[Family]) -> list[Line2D]:
    """A handle for each sign that the figure uses."""
    handles = seed_signs([member.row for family in families for member in family.members])
    if any(len(family.members) > 1 for family in families):
        handles.append(Line2D([], [], **FIRST, label="mean of the unchanged encoding"))
    return handles


def _note(families: Sequence[Family], panels: Sequence[Panel]) -> str:
    several = any(len(panel) > 1 for panel in panels)
    grey = any(member.row.mark is not None for family in families for member in family.members)
    return (
        f"{source(panels)} In bold the encoding as it is, under it with one part changed. "
        "Difference: of the means out of distribution, in points."
        + f" Intervals: Student{NBSP}t over seeds." * several
        + f" Grey: below 99{NBSP}% in distribution, not ranked." * grey
    )
