"""Ablations: an encoding beside itself without one part, as tables and as a figure.

Never imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tape_arith.arith.figures.captions import NBSP, Panel, signed, source
from tape_arith.arith.figures.labels import display_names
from tape_arith.arith.figures.leaderboard import COLOUR, NOT_RANKED, draw_seeds, seed_signs
from tape_arith.arith.figures.rows import Row, flat, rows
from tape_arith.arith.figures.style import GREY, LETTERS, finish, page, styled
from tape_arith.arith.figures.tables import csv_text, pipe_table
from tape_arith.arith.grids.axes import REGION_WORDS, Region
from tape_arith.arith.grids.statistics import holm, welch
from tape_arith.arith.registry.names import name_and_options

_REGIONS: tuple[Region, Region] = ("in_distribution", "out_of_distribution")
_TESTED = _REGIONS[1]
_ROW_HEIGHT = 0.15
"""The height of an encoding's row in the figure, in inches."""
_BASELINE: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": (0, (3, 2))}


class Member(NamedTuple):
    """An encoding compared out of distribution with the first member of its family.

    `label` is the options that change the encoding; for the first member, its name. `difference` is
    its mean minus the first member's (None if nothing is out of distribution). `p` is from Welch's
    test over seeds, Holm-adjusted for the tests of the family; None for the first member, for one
    seed, and for an encoding that has not converged, which is not ranked either. If the unchanged
    encoding is not scored, nothing is compared, and labels are names.
    """

    row: Row
    label: str
    difference: float | None = None
    p: float | None = None

    @property
    def unchanged(self) -> bool:
        """Tell whether this is the encoding as it is, without options."""
        return _family(self.row.encoding) == self.row.encoding

    @property
    def points(self) -> str:
        """The difference as "+3.1", "-" if it is unknown."""
        return "-" if self.difference is None else signed(100 * self.difference, 1)


Families = Sequence[Sequence[Member]]
"""One sequence of members per family, the unchanged encoding first."""


def families(panels: Sequence[Panel]) -> list[list[Member]]:
    """Group `panels` by the encoding that their names begin with, the unchanged one first.

    Raises UsageError if the grids must not be compared.
    """
    by_name = {row.encoding: row for row in rows(panels)}
    grouped: dict[str, list[Row]] = {}
    for panel in panels:
        grouped.setdefault(_family(panel[0].name), []).append(by_name[panel[0].name])
    return [
        _members(name, sorted(group, key=lambda row: row.encoding != name))
        for name, group in grouped.items()
    ]


def _family(name: str) -> str:
    return name_and_options(name)[0]


def _members(name: str, group: Sequence[Row]) -> list[Member]:
    first, *changed = group
    if first.encoding != name:
        return [Member(row, row.encoding) for row in group]
    tests = [
        None if first.mark or row.mark else welch(row.values[_TESTED], first.values[_TESTED])
        for row in changed
    ]
    adjusted = iter(holm([test.p for test in tests if test is not None]))
    members = [Member(first, first.encoding)]
    for row, test in zip(changed, tests, strict=True):
        mean, base = row.means[_TESTED], first.means[_TESTED]
        difference = None if mean is None or base is None else mean.mean - base.mean
        label = row.encoding.removeprefix(f"{name}:").replace(":", ", ")
        members.append(Member(row, label, difference, None if test is None else next(adjusted)))
    return members


def to_markdown(families: Families) -> str:
    """Format a pipe table of all families, means ± half-width of the 95 % interval in percent."""
    labels = _labels(families)
    table = pd.DataFrame(
        {
            "encoding": labels[member.row.encoding],
            "seeds": member.row.seed_count,
            **member.row.texts(*_REGIONS),
            "difference to the first, points": member.points,
            "p (Welch, Holm)": "-" if member.p is None else f"{member.p:.2g}",
            "converged": member.row.mark or "yes",
        }
        for members in families
        for member in members
    )
    return pipe_table(table)


def _labels(families: Families) -> dict[str, str]:
    return display_names(member.row.encoding for members in families for member in members)


def to_csv(families: Families) -> str:
    """Format the columns of a sweep's table, the difference (as a fraction) and its p."""
    lines = [
        {
            "family": _family(member.row.encoding),
            **flat(member.row),
            "difference": member.difference,
            "p_welch_holm": member.p,
        }
        for members in families
        for member in members
    ]
    return csv_text(lines)


FORMATS: dict[str, Callable[[Families], str]] = {"md": to_markdown, "csv": to_csv}


# ---- figure ------------------------------------------------------------------------------------


@styled()
def compose(families: Families, panels: Sequence[Panel]) -> Figure:
    """Draw a panel in distribution and one out of it: percent on the x axis, encodings on the y
    axis, differences to the right of the second."""
    members = [member for family in families for member in family]
    labels = _labels(families)
    gaps = [number / 2 for number, family in enumerate(families) for _ in family]
    heights = [row + gap for row, gap in enumerate(gaps)]
    handles = seed_signs([member.row for member in members])
    if any(member.unchanged for member in members):
        handles.append(Line2D([], [], **_BASELINE, label="mean of the unchanged encoding"))
    note, height = _note(members, panels, labels), _ROW_HEIGHT * (heights[-1] + 1) + 0.5
    figure = page(5.5, height, note, handles, 2)
    inside, outside = figure.subplots(1, 2)
    for ax, region in zip((inside, outside), _REGIONS, strict=True):
        values = [
            value
            for y, member in zip(heights, members, strict=True)
            for value in _draw_member(ax, y, member, region)
        ]
        remaining = iter(heights)
        for family in families:
            ys, mean = [next(remaining) for _ in family], family[0].row.means[region]
            if mean is not None and len(family) > 1 and family[0].unchanged:
                ax.vlines(100 * mean.mean, ys[0] - 0.5, ys[-1] + 0.5, zorder=1, **_BASELINE)
        low, high = min(values, default=0.0), max(values, default=100.0)
        room = max(0.04 * (high - low), 0.02) if high > low else 0.5
        ax.set(xlim=(max(low, 0) - room, min(high, 100) + room), ylim=(heights[-1] + 0.7, -0.9))
        ax.set_xlabel(f"exact match {REGION_WORDS[region]},{NBSP}%")
        ax.set_yticks([])
        ax.locator_params(axis="x", nbins=5)
        ax.ticklabel_format(axis="x", useOffset=False)
        finish(ax, grid="x")
        ax.spines.left.set_visible(False)
    names = [labels.get(each.label, each.label) for each in members]
    inside.set_yticks(heights, names)
    differences: Any = outside.secondary_yaxis("right")
    differences.spines.right.set_visible(False)
    points = [member.points if member.label != member.row.encoding else "" for member in members]
    differences.set_yticks([*heights, -0.5], [*points, "difference"])
    for axis in (inside, differences):
        axis.tick_params(axis="y", length=0, labelsize=LETTERS)
        for label, member in zip(axis.get_yticklabels(), members, strict=False):
            label.set_fontweight("bold" if member.unchanged else "normal")
            label.set_color(NOT_RANKED if member.row.mark else "black")
    return figure


def _draw_member(ax: Axes, y: float, member: Member, region: Region) -> list[float]:
    """Draw seeds as points over the interval of their mean; return the values drawn, in percent."""
    row, mean = member.row, member.row.means[region]
    draw_seeds(ax, y, row, region, COLOUR if row.mark is None else NOT_RANKED)
    values = [100 * value for value in row.values[region]]
    if mean is not None and len(row.seeds) > 1:
        values += [100 * mean.low, 100 * mean.high]
    return values


def _note(members: Sequence[Member], panels: Sequence[Panel], labels: Mapping[str, str]) -> str:
    several = any(len(panel) > 1 for panel in panels)
    return (
        f"{source(panels, labels)} In bold the encoding as it is, under it with one part changed. "
        "Difference: of the means out of distribution, in points."
        + f" Intervals: Student{NBSP}t over seeds." * several
        + f" Grey: below 99{NBSP}% in distribution, not ranked."
        * any(member.row.mark is not None for member in members)
    )
