"""Draw ablations: an encoding next to itself without one part, in and out of distribution."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tape_arith.arith.compare.captions import NBSP, source
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.sweep_tables import DRAWN, Families, Member
from tape_arith.arith.figures.leaderboard import COLOUR, NOT_RANKED, draw_seeds, seed_signs
from tape_arith.arith.figures.style import GREY, LETTERS, finish, page, styled
from tape_arith.arith.grids.axes import REGION_WORDS
from tape_arith.arith.grids.panel import Panel

_ROW_HEIGHT = 0.15
"""The height of an encoding's row in the figure, in inches."""
_BASELINE: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": (0, (3, 2))}


@styled()
def compose(families: Families, panels: Sequence[Panel]) -> Figure:
    """Draw exact match in and out of distribution, one panel each: percent on the x axis, encodings
    on the y axis, differences to the right."""
    members = list(chain.from_iterable(families))
    labels = panel_labels(member.panel for member in members)
    gaps = [number / 2 for number, family in enumerate(families) for _ in family]
    heights = [row + gap for row, gap in enumerate(gaps)]
    handles = seed_signs([member.panel for member in members])
    if any(member.unchanged for member in members):
        handles.append(Line2D([], [], **_BASELINE, label="mean of the unchanged encoding"))
    note, height = _note(members, panels, labels), _ROW_HEIGHT * (heights[-1] + 1) + 0.5
    figure = page(5.5, height, note, handles, 2)
    inside, outside = figure.subplots(1, 2)
    for ax, region in zip((inside, outside), DRAWN, strict=True):
        values: list[float] = []
        for y, panel in zip(heights, (member.panel for member in members), strict=True):
            values += draw_seeds(ax, y, panel, region, NOT_RANKED if panel.convergence else COLOUR)
        remaining = iter(heights)
        for family in families:
            ys, mean = [next(remaining) for _ in family], family[0].panel.mean(region)
            if mean is not None and len(family) > 1 and family[0].unchanged:
                ax.vlines(100 * mean, ys[0] - 0.5, ys[-1] + 0.5, zorder=1, **_BASELINE)
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
    points = [member.points if member.label != member.panel.name else "" for member in members]
    differences.set_yticks([*heights, -0.5], [*points, "difference"])
    for axis in (inside, differences):
        axis.tick_params(axis="y", length=0, labelsize=LETTERS)
        for label, member in zip(axis.get_yticklabels(), members, strict=False):
            label.set_fontweight("bold" if member.unchanged else "normal")
            label.set_color(NOT_RANKED if member.panel.convergence else "black")
    return figure


def _note(members: Sequence[Member], panels: Sequence[Panel], labels: Mapping[str, str]) -> str:
    several = any(len(panel.seeds) > 1 for panel in panels)
    return (
        f"{source(panels, labels)} In bold the encoding as it is, under it with one part changed. "
        "Difference: of the means out of distribution, in points"
        + f", with its 95{NBSP}% interval (Welch). Bars: Student{NBSP}t over seeds" * several
        + "."
        + f" Grey: below 99{NBSP}% in distribution, not ranked."
        * any(member.panel.convergence for member in members)
    )
