"""The comparison heatmap: exact match over the lengths of two axes, one panel per encoding.

Shapes: a grid is M x N. Its cell [i, j] is the unit square whose lower left corner is (j, i): the
length on the first axis goes up, that on the second to the right, from the shortest. A panel is
square however many lengths an axis has. Grids of one axis are drawn by `lines.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from matplotlib.text import Text

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.labels import panel_labels, prior_word
from tape_arith.arith.compare.leaderboard import describe_order, heatmap_panels
from tape_arith.arith.compare.lengths import axis_label, operand, ticks, unit
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import style
from tape_arith.arith.figures.layout import GAP, LINE, SHORT_WORDS, Layout, Looks, layout
from tape_arith.arith.figures.lines import compose as compose_lines
from tape_arith.arith.figures.text import fit_alike, fit_artist, text_width
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
_HIDDEN = "cells are means, which hide how much seeds differ"


class _Above(NamedTuple):
    """Texts below the names of panels; those of a field get letters of one size.

    Marks may be smaller than the lines at whose ends they are: a long one leaves numbers readable.
    """

    lines: list[Text]
    marks: list[Text]


def draw(
    selection: Selection,
    *,
    seed: int | None = None,
    sort: bool = False,
    by_length: bool = False,
    **looks: Any,
) -> tuple[Figure, Path]:
    """Draw the heatmap of a selection; return it with its default path.

    The arguments are those of `tape_arith.heatmap`. Raises UsageError as `heatmap_panels`.
    """
    panels, in_order = heatmap_panels(selection, seed=seed, sort=sort)
    drawn = compose(panels, in_order=in_order, by_length=by_length, **looks)
    return drawn, selection.figure_path(panels, "-by-length" * by_length)


def compose(
    panels: Sequence[Panel],
    *,
    in_order: bool = False,
    labels: Mapping[str, str] | None = None,
    by_length: bool = False,
    axes: Sequence[Axes] | None = None,
    **looks: Any,
) -> Figure:
    """Return the figure of `panels`, with the fields of `Looks`.

    The first axes are the panels; then come the difference of two, and the colour bars. Grids of
    one axis are drawn as lines over it, and others too with `by_length`: over the length of the
    longer operand. Raises UsageError for what has no room.

    in_order  whether the panels are in the order of `sort_panels`
    labels    names to print in place of their usual labels
    axes      the caller's, to draw panels into; the rest of the page is then the caller's too
    """
    labels, look = panel_labels(panels, labels), Looks(**looks)
    lengths, order = panels[0].axes, describe_order(panels) if in_order else ""
    has_lines = len(lengths) == 1 or by_length
    if axes is not None:
        _check_axes(axes, panels, has_lines=has_lines)
        look = replace(look, difference=len(axes) > len(panels))
    elif has_lines:
        with style.styled(font=look.font):
            return compose_lines(panels, labels, order, look)
    marked = look.numbers == "all" or any(each.convergence or prior_word(each) for each in panels)
    place = layout(len(panels), look, marked=marked)
    if axes is not None:
        box = axes[0].get_window_extent()
        side = min(box.width, box.height) / axes[0].figure.dpi
        place = place._replace(columns=1, rows=1, side=side)
    drawn, page, above = list(axes or ()), None, _Above([], [])
    with style.styled(place.letters, look.font):
        if axes is None:
            page = _page(panels, labels, place, look, order)
            drawn = list(page.subplots(place.rows, place.columns, squeeze=False).ravel())
        else:
            for ax in drawn:
                style.adopt(ax)
        used = [*range(len(panels)), *[len(drawn) - 1] * place.compared]
        for number, (ax, panel) in enumerate(zip(drawn, panels, strict=False)):
            mesh = _paint(ax, panel.cell_means, style.colours(), (0, look.vmax / 100), lengths)
            # Where the caller's axes stand is the caller's: each has its labels.
            left = number % place.columns == 0
            lowest = page is None or number + place.columns not in used
            _label_axes(ax, lengths, place, left=left, bottom=lowest)
            words = _lines_above(panel, place)
            _write_title(ax, labels[panel.name], words, place, above, panel.convergence)
        if place.compared:
            difference = _draw_difference(drawn[-1], panels, labels, place, above)
        if page is None:
            fit_alike(above, lambda text: 72 * place.side - _start(text))
            return drawn[0].figure.figure  # that of a subfigure, too
        for number in set(range(len(drawn))).difference(used):
            drawn[number].remove()
        _add_bar(
            mesh,
            drawn[: len(panels)],
            place,
            label="exact match",
            ticks=np.linspace(0, look.vmax / 100, 5),
            format=style.percent_tick,
            extend="max" if look.vmax < 100 else "neither",
        )
        if place.compared:
            limit = difference.get_clim()[1]
            _add_bar(
                difference,
                drawn[-1:],
                place,
                label="points" if place.brief else "difference, percentage points",
                ticks=np.linspace(-limit, limit, 3 if place.brief else 5),
                format=lambda value, _: captions.signed(value, 0),
            )
        page.fit_alike_later(*above)
    return page


def _start(text: Text) -> float:
    """Return where a text above a panel begins, in points from the panel's left edge."""
    ax: Any = text.axes
    return 72 * float(text.get_window_extent().x0 - ax.bbox.x0) / ax.figure.dpi


def _page(
    panels: Sequence[Panel], labels: Mapping[str, str], place: Layout, look: Looks, order: str
) -> style.Page:
    """Return the page of panels, with its legend and caption."""
    lengths = panels[0].axes
    handles = [Patch(label="trained lengths", **_OUTLINE)]
    signs = ["framed: trained lengths"]
    if place.compared:
        words = ["no significant difference (FDR 5 %, over problems)"]
        signs += [f"grey: {words[0]}"]
        words += [f"small but significant: {labels[panel.name]} higher" for panel in panels]
        looks = [style.PALE, *difference_colours()([128, 127])]
        handles += [Patch(label=w, facecolor=look) for w, look in zip(words, looks, strict=True)]
    clauses = [
        f"axes: {unit(lengths[0])} of the operands" * (place.brief and bool(operand(lengths[0]))),
        SHORT_WORDS[len(place.means)] * place.brief,
        _HIDDEN * any(len(panel.seeds) > 1 for panel in panels),
        order,
        f"colours of exact match end at {style.percent_tick(look.vmax / 100)}" * (look.vmax < 100),
        *(f"axis: {axis.name}" for axis in lengths if place.brief and axis.is_place),
        *signs * (not look.legend),
    ]
    return style.page(
        place.width,
        place.height,
        captions.caption(panels, labels, clauses, [*place.means]) if look.caption else "",
        handles if look.legend else (),
        4,
        place.letters,
        compress=True,
    )


def _check_axes(axes: Sequence[Axes], panels: Sequence[Panel], *, has_lines: bool) -> None:
    """Raise UsageError unless there is an axes for each panel, and for the difference of two."""
    if has_lines:
        raise UsageError("axes are for heatmaps: leave them out where lengths are drawn as lines")
    count = len(panels)
    if len(axes) not in (count, count + (count == 2)):
        third = " (a third shows their difference)" * (count == 2)
        raise UsageError(f"{count} panels need {count} axes{third}, not {len(axes)}")


def _lines_above(panel: Panel, place: Layout) -> list[str]:
    """Return the lines below the name of a panel; the last has its seeds and marks, if any.

    A panel without a mark has no line for it, so that its name is right above its numbers.
    """
    words = [captions.mean_line(panel, region, place.means) for region in place.means]
    # The mark of what is not ranked has the room of the prior above small panels.
    prior = "" if place.brief and panel.convergence else prior_word(panel)
    seeds = captions.seeds_line(panel) if place.numbers == "all" else ""
    last = ", ".join(filter(None, [seeds, prior]))
    return [*words, last] if last or panel.convergence else words


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


def _add_bar(mesh: QuadMesh, axes: Sequence[Axes], place: Layout, **look: Any) -> None:
    """Draw the colour bar of some panels, as long as all these panels together."""
    columns = min(place.columns, len(axes))
    rows = -(-len(axes) // columns)
    step = place.height / place.rows
    length, breadth = rows * step - (step - place.side), columns * (place.side + GAP) - GAP
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
    ax: Axes, panels: Sequence[Panel], labels: Mapping[str, str], place: Layout, above: _Above
) -> QuadMesh:
    """Draw the first encoding minus the second; cells are grey without a significant difference."""
    first, second = panels
    points = 100 * (first.cell_means - second.cell_means)
    limit, lengths = difference_limit(points), first.axes
    mesh = _paint(ax, points, difference_colours(), (-limit, limit), lengths)
    ones = np.ma.masked_array(np.ones(points.shape), mask=significant_cells(first, second))
    ax.pcolormesh(ones, cmap=ListedColormap([style.PALE]), vmin=0, vmax=1, rasterized=True)
    _label_axes(ax, lengths, place, left=place.columns == 1, bottom=True)
    means = place.means
    words = [captions.difference_line(first, second, region, means) for region in means]
    words += ["over problems, not over seeds"] * bool(means and place.marked)
    name = " \N{MINUS SIGN} ".join(labels[panel.name] for panel in panels)
    if text_width(name, 5, "bold") > 72 * place.side:  # shortened, it would lose its minus
        name = "first \N{MINUS SIGN} second"
    _write_title(ax, name, words, place, above)
    return mesh


def _label_axes(ax: Axes, lengths: Lengths, place: Layout, *, left: bool, bottom: bool) -> None:
    """Put ticks in the middle of cells, and their words only at the figure's outer edge."""
    for axis, outer, scored in zip((ax.yaxis, ax.xaxis), (left, bottom), lengths, strict=True):
        marks = ticks(scored.tested, scored.shortest)
        places = [length - scored.shortest + 0.5 for length in marks]
        axis.set_ticks(places, list(map(str, marks)) if outer else [])
        if outer:
            axis.set_label_text(axis_label(scored, brief=place.brief))


def _write_title(
    ax: Axes, name: str, lines: Sequence[str], place: Layout, above: _Above, mark: str | None = None
) -> None:
    """Write a panel's name, means and seeds above it, then `mark` in red (not converged)."""
    step = LINE * place.letters
    look: dict[str, Any] = {"fontsize": place.letters + 1.5, "fontweight": "bold"}
    look["pad"] = 4 + step * len(lines)
    if isinstance(ax.get_figure(), style.Page):
        style.write_title(ax, name, **look)
    else:  # of a caller, who expects the name where matplotlib has titles
        title = ax.set_title(name, loc="center", x=0, ha="left", **look)
        fit_artist(title, 72 * place.side)

    def write(text: str, row: int, before: Text | None = None, **look: Any) -> Text:
        start: Any = "axes fraction" if before is None else (before, "axes fraction")
        at, x = ((0, 1), 0.0) if before is None else ((1, 1), 0.5 * place.letters)
        look |= {"xycoords": start, "textcoords": "offset points", "fontsize": place.letters}
        note = ax.annotate(text, at, (x, 4 + step * row), **look)
        note.set_in_layout(False)
        return note

    written = [write(line, row, color="#222222") for row, line in enumerate(reversed(lines))]
    above.lines.extend(written)
    if mark:
        before, mark = (written[0], f"· {mark}") if lines[-1] else (None, mark)
        above.marks.append(write(mark, 0, before, color="#b3261e", fontweight="bold"))
