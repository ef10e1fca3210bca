"""Ablations as a figure: each beside the encoding it is taken from, its seeds as points."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tape_arith.arith.figures.captions import NBSP, Panel, source
from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.leaderboard import (
    ALONE,
    COLOUR,
    GREY,
    INTERVAL,
    LETTERS,
    MEAN,
    SEED,
    WORDS,
)
from tape_arith.arith.figures.leaderboard import width as width_of
from tape_arith.arith.figures.style import lines
from tape_arith.arith.scoring.regions import REGION_WORDS, Region
from tape_arith.arith.studies.ablations_table import Family, Member, points

# Inches: the page and its edge, a row, the heads above and the axis below, the line of signs.
WIDTH, EDGE, ROW, ABOVE, BELOW, SIGNS = 5.5, 0.06, 0.15, 0.2, 0.31, 0.18
# Inches: between the panels, and the column of differences at the right.
GAP, COLUMN = 0.16, 0.5
PANELS: tuple[Region, ...] = ("in_distribution", "out_of_distribution")
FIRST: dict[str, Any] = {"color": WORDS, "linewidth": 0.7, "linestyle": (0, (3, 2))}


def draw(families: Sequence[Family], panels: Sequence[Panel], path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all.

    `panels` are the grids that `families` were made of. Errors: UsageError for another ending;
    Failure where the disk refuses.
    """
    kind = figure_format(path)
    save(compose(families, panels), path, kind)


def compose(families: Sequence[Family], panels: Sequence[Panel]) -> Figure:
    """The figure before it is written: a panel in distribution, one out of it, each with percent
    across and rows down; the differences stand beside the second."""
    with mpl.rc_context(STYLE):
        return _Sheet(families, panels).figure


class _Sheet:
    """The page: its height follows from the rows, in inches."""

    def __init__(self, families: Sequence[Family], panels: Sequence[Panel]) -> None:
        self.families = families
        labels = [member.label for family in families for member in family.members]
        self.left = EDGE + max(width_of(label, LETTERS) for label in labels) + 0.14
        self.across = (WIDTH - self.left - COLUMN - GAP - EDGE) / 2
        self.rows = sum(len(family.members) for family in families) + 0.5 * (len(families) - 1)
        tall = (self.rows + 0.4) * ROW
        note = lines(_note(families, panels), 72 * (WIDTH - 2 * EDGE), LETTERS)
        note_height = len(note) * LETTERS * 1.3 / 72
        self.bottom = EDGE + note_height + SIGNS + BELOW
        self.height = self.bottom + tall + ABOVE
        self.tall = tall
        self.figure = Figure(figsize=(WIDTH, self.height), dpi=DPI)
        FigureCanvasAgg(self.figure)
        for number, region in enumerate(PANELS):
            ax = self._axes(self.left + number * (self.across + GAP))
            self._panel(ax, region)
            if number == 0:
                self._names(ax)
            else:
                self._differences(ax)
        style: dict[str, Any] = {"fontsize": LETTERS, "color": WORDS, "linespacing": 1.3}
        at = (EDGE / WIDTH, EDGE / self.height)
        self.figure.text(*at, "\n".join(note), va="bottom", **style)
        self.figure.legend(
            handles=_signs(families),
            loc="lower left",
            bbox_to_anchor=(EDGE / WIDTH, (EDGE + note_height) / self.height),
            ncols=5,
            columnspacing=1.2,
            handlelength=1.4,
            borderaxespad=0.0,
            borderpad=0.2,
            frameon=False,
            fontsize=LETTERS,
        )

    def _axes(self, x: float) -> Axes:
        box = (x / WIDTH, self.bottom / self.height, self.across / WIDTH, self.tall / self.height)
        ax = self.figure.add_axes(box)
        ax.set_ylim(self.rows + 0.2, -0.2)
        return ax

    def _placed(self) -> Iterator[tuple[float, Family, list[tuple[float, Member]]]]:
        """Where each family begins, and the middle of each of its rows."""
        y = 0.0
        for family in self.families:
            yield y, family, [(y + i + 0.5, member) for i, member in enumerate(family.members)]
            y += len(family.members) + 0.5

    def _panel(self, ax: Axes, region: Region) -> None:
        """Seeds as points over the interval of their mean; the first's mean through its family."""
        seen: list[float] = []
        for top, family, placed in self._placed():
            first = family.members[0].row.means[region]
            if first is not None and len(family.members) > 1:
                ends = (top, top + len(family.members))
                ax.vlines(100 * first.mean, *ends, zorder=1, **FIRST)
            for y, member in placed:
                ax.axhline(y, color="#efefef", linewidth=0.5, zorder=0)
                seen += _draw_member(ax, y, member, region)
        low, high = min(seen, default=0.0), max(seen, default=100.0)
        room = max(0.04 * (high - low), 0.02)
        low, high = max(low - room, 0 - room), min(high + room, 100 + room)
        ax.set(xlim=(low, high), xlabel="", ylabel="")
        ax.set_xlabel(f"exact match {REGION_WORDS[region]},{NBSP}%", fontsize=LETTERS, labelpad=2)
        ax.set_yticks([])
        ax.locator_params(axis="x", nbins=5)
        ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
        ax.grid(visible=True, axis="x", color="#e4e4e4", linewidth=0.5)
        ax.set_axisbelow(True)
        sns.despine(ax=ax, left=True)

    def _names(self, ax: Axes) -> None:
        for _, _, placed in self._placed():
            for y, member in placed:
                first = member.label == member.row.encoding
                self._word(ax, -0.08, y, member.label, member, weight="bold" if first else None)

    def _differences(self, ax: Axes) -> None:
        """Out of distribution, in points, beside each row but the first of its family."""
        style: dict[str, Any] = {"fontsize": LETTERS, "ha": "right", "clip_on": False}
        at = {"transform": ax.get_yaxis_transform(), "va": "center_baseline", **style}
        right = 1 + COLUMN / self.across
        ax.text(right, -0.55, "difference", color=WORDS, **at)
        for _, _, placed in self._placed():
            for y, member in placed[1:]:
                colour = "black" if _counts(member) else GREY
                ax.text(right, y, points(member), color=colour, **at)

    def _word(self, ax: Axes, x: float, y: float, words: str, of: Member, **style: Any) -> None:
        ax.text(
            x / self.across,
            y,
            words,
            transform=ax.get_yaxis_transform(),
            fontsize=LETTERS,
            color="black" if _counts(of) else GREY,
            ha="right",
            va="center_baseline",
            clip_on=False,
            **style,
        )


def _draw_member(ax: Axes, y: float, member: Member, region: Region) -> list[float]:
    """Draw a row; what must be on the axis, in percent."""
    row, colour = member.row, COLOUR if _counts(member) else GREY
    values = [100 * value for value in row.values[region] if value is not None]
    points = pd.DataFrame({"x": values, "y": y})
    look: dict[str, Any] = {"ax": ax, "zorder": 3, "clip_on": False, "legend": False}
    if len(row.seeds) == 1:
        sns.scatterplot(points, x="x", y="y", **look, **ALONE, edgecolor=colour)
        return values
    sns.scatterplot(points, x="x", y="y", **look, **SEED, color=colour)
    mean = row.means[region]
    if mean is None:
        return values
    ax.hlines(y, 100 * mean.low, 100 * mean.high, color=colour, zorder=2, **INTERVAL)
    ax.scatter([100 * mean.mean], [y], **MEAN, color=colour, zorder=4)
    return [*values, 100 * mean.low, 100 * mean.high]


def _counts(member: Member) -> bool:
    """Whether it is fully scored and has fit the trained lengths."""
    return member.row.mark is None


def _signs(families: Sequence[Family]) -> list[Line2D]:
    """A handle for each sign that the figure uses."""
    members = [member for family in families for member in family.members]
    counts = {len(member.row.seeds) for member in members}
    base: dict[str, Any] = {"color": COLOUR, "linewidth": 0}
    handles = []
    if counts - {1}:
        handles += [
            Line2D([], [], **base, marker="o", markersize=2.6, mew=0, label="a seed"),
            Line2D([], [], **base, marker="|", markersize=6, mew=1.1, label="their mean"),
            Line2D([], [], color=COLOUR, **INTERVAL, label=f"95{NBSP}% interval"),
        ]
    if 1 in counts:
        look: dict[str, Any] = {"marker": "D", "markersize": 3, "mfc": "white", "mew": 0.8}
        handles.append(Line2D([], [], **base, **look, label="one seed"))
    if any(len(family.members) > 1 for family in families):
        handles.append(Line2D([], [], **FIRST, label="mean of the unchanged encoding"))
    return handles


def _note(families: Sequence[Family], panels: Sequence[Panel]) -> str:
    several = any(len(panel) > 1 for panel in panels)
    grey = any(not _counts(member) for family in families for member in family.members)
    interval = f" Intervals: Student{NBSP}t over seeds." if several else ""
    note = f"{source(panels)} In bold the encoding as it is, under it with one part changed."
    note += " Difference: of the means out of distribution, in points." + interval
    return note + (f" Grey: below 99{NBSP}% in distribution, not ranked." if grey else "")
