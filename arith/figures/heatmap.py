"""The comparison heatmap: exact match over the lengths of two axes, one panel per encoding.

Shapes: a grid is M x N. Its cell [i, j] is the unit square whose lower left corner is (j, i): the
length on the first axis goes up, that on the second to the right, from the shortest. A panel is
square however many lengths an axis has. Grids of one axis are drawn by `lines.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.labels import panel_labels
from tape_arith.arith.compare.leaderboard import describe_order, heatmap_panels
from tape_arith.arith.compare.lengths import axis_label, operand, ticks, unit
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import style
from tape_arith.arith.figures.lines import compose as compose_lines
from tape_arith.arith.figures.text import text_width
from tape_arith.arith.grids.axes import REGION_WORDS, Region
from tape_arith.arith.grids.axes import Axes as Lengths
from tape_arith.arith.grids.grid import Floats
from tape_arith.arith.grids.panel import Panel, significant_cells

_DIFFERENCES = "vlag"
_FAINTEST = 0.17
"""Distance from the middle of _DIFFERENCES: no significant difference looks grey or white."""
_OUTLINE: dict[str, Any] = {
    "fill": False,
    "edgecolor": "white",
    "linewidth": 1.1,
    # The white line shows on dark cells, its black border on light ones.
    "path_effects": [withStroke(linewidth=2.3, foreground="black")],
}
_SHORT_LABELS: dict[Region, str] = {
    "out_of_distribution": "out",
    "in_distribution": "in",
    "all_cells": "all",
}
_SHORT_WORDS = {
    2: "out, in: means out of and in distribution",
    3: "out, in, all: means out of and in distribution, over all cells",
}
"""What the labels stand for, by their number."""
_HIDDEN = "cells are means, which hide how much seeds differ"
_LINE = 1.28
"""Height of a line of text above a panel, in multiples of the letter size."""
_GAP = 0.16
"""Space between two panels, in inches."""
_SMALLEST, _LARGEST = 0.75, 2.6
"""Least and greatest side of a panel, in inches."""
_LONGEST = 9.6
"""Greatest height of all rows of panels, in inches, unless columns are given."""


class Layout(NamedTuple):
    """`columns` x `rows` square panels on a page; lengths are in inches, `letters` in points."""

    width: float
    columns: int
    rows: int
    side: float
    bars_below: bool = False
    """Whether colour bars are below the panels, not to their right."""

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
        if not self.brief:
            return {region: REGION_WORDS[region] for region in captions.MEANS}
        number = 2 if self.rows > 3 else 3  # many rows have no room for all cells
        return dict(list(_SHORT_LABELS.items())[:number])

    @property
    def height(self) -> float:
        """Return the height of all rows: panels, the text above them, the labels below."""
        above = (6 + _LINE * self.letters * (len(self.means) + 2)) / 72
        return self.rows * (self.side + above + 0.1) + (0.5 if self.bars_below else 0.17)


def layout(count: int, width: float | None = None, columns: int | None = None) -> Layout:
    """Return the layout for `count` encodings; two get a third panel, for their difference.

    Raises UsageError for panels that do not fit the `width` of the page, in inches.
    """
    compared = count == 2
    squares = count + compared
    page = width or {1: 3.95, 2: 6.9}.get(count, 7.3)
    bars_below = count > 1 and page < 4.5
    room = page - (0.45 if bars_below else 1.0 + 0.7 * compared)

    def of(columns: int) -> Layout:
        side = min(_LARGEST, (room - _GAP * (columns - 1)) / columns)
        return Layout(page, columns, -(-squares // columns), side, bars_below)

    if columns is not None:
        place = of(min(columns, squares))
        if place.side < _SMALLEST:
            raise UsageError(f"{columns} columns do not fit {page:g} inches: give fewer --columns")
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


def draw(
    selection: Selection,
    *,
    seed: int | None = None,
    sort: bool = False,
    labels: Mapping[str, str] | None = None,
    by_length: bool = False,
    **looks: Any,
) -> tuple[Figure, Path]:
    """Draw the heatmap of a selection; return it with its default path.

    The arguments are those of `tape_arith.heatmap`. Raises UsageError as `heatmap_panels`.
    """
    panels, in_order = heatmap_panels(selection, seed=seed, sort=sort)
    drawn = compose(panels, in_order=in_order, labels=labels, by_length=by_length, **looks)
    return drawn, selection.figure_path(panels, "-by-length" * by_length)


def compose(
    panels: Sequence[Panel],
    *,
    in_order: bool = False,
    labels: Mapping[str, str] | None = None,
    width: float | None = None,
    columns: int | None = None,
    caption: bool = True,
    by_length: bool = False,
) -> Figure:
    """Return the figure of `panels`.

    The first axes are the panels; then come the difference of two, and the colour bars. Grids of
    one axis are drawn as lines over it, and others too with `by_length`: over the length of the
    longer operand.

    in_order  whether the panels are in the order of `sort_panels`
    labels    names to print in place of their usual labels
    """
    labels = panel_labels(panels, labels)
    lengths, order = panels[0].axes, describe_order(panels) if in_order else ""
    if len(lengths) == 1 or by_length:
        return compose_lines(panels, labels, order, width=width, columns=columns, caption=caption)
    compared = len(panels) == 2
    place = layout(len(panels), width, columns)
    names = [labels[panel.name] for panel in panels]
    means = [panel.cell_means for panel in panels]
    clauses = [_HIDDEN * any(len(panel.seeds) > 1 for panel in panels), order]
    if place.brief:
        clauses.insert(0, f"axes: {unit(lengths[0])} of the operands" * bool(operand(lengths[0])))
        clauses.insert(1, _SHORT_WORDS[len(place.means)])
        clauses += [f"axis: {axis.name}" for axis in lengths if axis.is_place]
    handles = [Patch(label="trained lengths", **_OUTLINE)]
    if compared:
        words = ["no significant difference (FDR 5 %, over problems)"]
        words += [f"small but significant: {name} higher" for name in names]
        looks = [style.PALE, *difference_colours()([128, 127])]
        handles += [Patch(label=w, facecolor=look) for w, look in zip(words, looks, strict=True)]
    with style.styled(place.letters):
        figure = style.page(
            place.width,
            place.height,
            captions.caption(panels, labels, clauses) if caption else "",
            handles,
            4,
            place.letters,
            compress=True,
        )
        axes = figure.subplots(place.rows, place.columns, squeeze=False).ravel()
        used = [*range(len(panels)), *[len(axes) - 1] * compared]
        for number, (ax, panel, values) in enumerate(zip(axes, panels, means, strict=False)):
            mesh = _paint(ax, values, style.COLOURS, (0, 1), lengths)
            left, lowest = number % place.columns == 0, number + place.columns not in used
            _label_axes(ax, lengths, place, left=left, bottom=lowest)
            words = [captions.mean_line(panel, region, place.means) for region in place.means]
            # The mark of what is not ranked has the room of the prior above small panels.
            alone = place.brief and panel.convergence
            words.append((captions.seeds_line if alone else captions.marked_seeds)(panel))
            _write_title(ax, names[number], words, place, panel.convergence)
        for number in set(range(len(axes))).difference(used):
            axes[number].remove()
        _add_bar(
            mesh,
            axes[: len(panels)],
            place,
            label="exact match",
            ticks=[0, 0.25, 0.5, 0.75, 1],
            format=style.percent_tick,
        )
        if compared:
            _draw_difference(axes[-1], panels, names, 100 * (means[0] - means[1]), place)
    return figure


def difference_limit(points: Floats) -> int:
    """Return where the scale of a difference in percentage points ends."""
    largest = np.abs(points).max()
    return next(bound for bound in (10, 20, 40, 60, 80, 100) if largest <= bound + 1e-9)


def difference_colours() -> ListedColormap:
    """Return 256 colours from _DIFFERENCES without its pale middle, so that each shows a sign."""
    places = [np.linspace(0, 0.5 - _FAINTEST, 128), np.linspace(0.5 + _FAINTEST, 1, 128)]
    return ListedColormap(sns.color_palette(_DIFFERENCES, as_cmap=True)(np.concatenate(places)))


def _paint(
    ax: Axes, values: Floats, colours: Colormap, limits: tuple[float, float], lengths: Lengths
) -> QuadMesh:
    """Draw float64[M, N] as cells, with an outline around those of trained lengths."""
    # An image even in SVG and PDF: 6,400 vector squares open slowly and show white seams.
    mesh = ax.pcolormesh(values, cmap=colours, vmin=limits[0], vmax=limits[1], rasterized=True)
    ax.set_aspect(values.shape[1] / values.shape[0])
    up, right = (axis.trained - axis.shortest + 1 for axis in lengths)
    outline = Rectangle((0, 0), right, up, zorder=3, **_OUTLINE)
    ax.add_patch(outline)
    # Inside the trained cells alone, so that it covers none of the first untrained length.
    outline.set_clip_path(Rectangle((0, 0), right, up, transform=ax.transData))
    return mesh


def _add_bar(mesh: QuadMesh, axes: Iterable[Axes], place: Layout, **look: Any) -> None:
    """Draw the colour bar of some panels, as long as all these panels together."""
    axes = list(axes)
    columns = min(place.columns, len(axes))
    rows = -(-len(axes) // columns)
    step = place.height / place.rows
    length, breadth = rows * step - (step - place.side), columns * (place.side + _GAP) - _GAP
    if place.bars_below:
        length, breadth = breadth, length
    overhang = 0.1 * place.side * (rows > 1)  # text above lower panels is up to 1.1 sides wide
    bar = axes[0].figure.colorbar(
        mesh,
        ax=axes,
        location="bottom" if place.bars_below else "right",
        fraction=0.13 / breadth,
        pad=(0.05 + overhang) / breadth,
        aspect=length / 0.09,
        **look,
    )
    bar.outline.set_linewidth(0.5)


def _draw_difference(
    ax: Axes, panels: Sequence[Panel], names: Sequence[str], points: Floats, place: Layout
) -> None:
    """Draw the first encoding minus the second; cells are grey without a significant difference."""
    (first, second), limit = panels, difference_limit(points)
    lengths = first.axes
    mesh = _paint(ax, points, difference_colours(), (-limit, limit), lengths)
    ones = np.ma.masked_array(np.ones(points.shape), mask=significant_cells(first, second))
    ax.pcolormesh(ones, cmap=ListedColormap([style.PALE]), vmin=0, vmax=1, rasterized=True)
    _label_axes(ax, lengths, place, left=place.columns == 1, bottom=True)
    means = place.means
    words = [captions.difference_line(first, second, region, means) for region in means]
    name = " \N{MINUS SIGN} ".join(names)
    if text_width(name, 5, "bold") > 72 * place.side:  # shortened, it would lose its minus
        name = "first \N{MINUS SIGN} second"
    _write_title(ax, name, [*words, "over problems, not over seeds"], place)
    _add_bar(
        mesh,
        [ax],
        place,
        label="points" if place.brief else "difference, percentage points",
        ticks=[-limit, 0, limit] if place.brief else [-limit, -limit / 2, 0, limit / 2, limit],
        format=lambda value, _: captions.signed(value, 0),
    )


def _label_axes(ax: Axes, lengths: Lengths, place: Layout, *, left: bool, bottom: bool) -> None:
    """Put ticks in the middle of cells, and their words only at the figure's outer edge."""
    for axis, outer, scored in zip((ax.yaxis, ax.xaxis), (left, bottom), lengths, strict=True):
        marks = ticks(scored.tested, scored.shortest)
        places = [length - scored.shortest + 0.5 for length in marks]
        axis.set_ticks(places, list(map(str, marks)) if outer else [])
        if outer:
            axis.set_label_text(axis_label(scored, brief=place.brief))


def _write_title(
    ax: Axes, name: str, lines: Sequence[str], place: Layout, mark: str | None = None
) -> None:
    """Write a panel's name, means and seeds above it, then `mark` in red (not converged)."""
    step = _LINE * place.letters
    look: dict[str, Any] = {"fontsize": place.letters + 1.5, "fontweight": "bold"}
    style.write_title(ax, name, pad=4 + step * len(lines), **look)

    def write(text: str, row: int, x: float = 0.0, **look: Any) -> None:
        look |= {"xycoords": "axes fraction", "textcoords": "offset points"}
        look |= {"fontsize": place.letters}
        note = ax.annotate(text, (0, 1), (x, 4 + step * row), **look)
        note.set_in_layout(False)
        style.fit_later(note, uncut=True)

    for row, line in enumerate(reversed(lines)):
        write(line, row, color="#222222")
    if mark:
        start = text_width(lines[-1], place.letters) + 0.5 * place.letters
        write(f"· {mark}", 0, start, color="#b3261e", fontweight="bold")
