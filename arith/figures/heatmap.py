"""The comparison heatmap: exact match over operand lengths, a panel an encoding.

Shapes: N the longest operand scored. Cell (i, j) is the unit square whose upper right corner is
(j, i): the first operand's length goes up, the second's to the right, and both start at 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from tape_arith.arith.figures import captions, style
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.scoring.grid import REGION_WORDS, Bools, Floats, Region
from tape_arith.arith.scoring.statistics import false_discovery, two_proportion

COLOURS = "viridis"
DIFFERENCES = "vlag"
_DISCOVERY_RATE = 0.05
_GREY = "#cfcfcf"
"""Of cells without a significant difference."""
_OUTLINE: dict[str, Any] = {
    "fill": False,
    "edgecolor": "white",
    "linewidth": 0.7,
    # White on the dark end of the colours, black around it on the light end.
    "path_effects": [withStroke(linewidth=1.7, foreground="black")],
}
_SHORT_LABELS: dict[Region, str] = {"out_of_distribution": "out", "in_distribution": "in"}
_SHORT_WORDS = "Axes: digits of the operands. Out: mean out of distribution; in: in distribution."
_LINE = 1.28
"""Height of a line above a panel, in letters."""


class Layout(NamedTuple):
    """`columns` x `rows` squares on a paper's width; inches, but `letters` in points."""

    columns: int
    rows: int
    side: float
    letters: float
    brief: bool = False
    """Whether a panel has two means in short words above it, not three."""

    @property
    def means(self) -> Mapping[Region, str]:
        """The means above a panel, and their labels."""
        return _SHORT_LABELS if self.brief else {r: REGION_WORDS[r] for r in captions.MEANS}

    @property
    def height(self) -> float:
        """Return the inches of all rows: squares, the lines above them, the labels below."""
        above = (6 + _LINE * self.letters * (len(self.means) + 2)) / 72
        return self.rows * (self.side + above + 0.1) + 0.25


def layout(count: int) -> Layout:
    """Return rows and columns for `count` encodings; of two the third panel is the difference."""
    if count == 1:
        return Layout(1, 1, 2.6, 7.0)
    if count == 2:
        return Layout(3, 1, 1.62, 6.6)
    if count > 12:
        columns, side = (6, 0.93) if count <= 30 else (7, 0.78)  # fifty fit a page
        return Layout(columns, -(-count // columns), side, 5.2, brief=True)
    columns = 3 if count in (3, 5, 6, 9) else 4
    side, letters = (1.84, 7.0) if columns == 3 else (1.42, 6.2)
    return Layout(columns, -(-count // columns), side, letters)


def compose(panels: Sequence[Panel], seed: int | None = None, *, order: str = "") -> Figure:
    """Return the figure of `panels`, which hold the grids (seeds) of each encoding.

    With `seed` only that one is shown. `order` is a sentence that says in which order they stand.
    The first axes are the panels; then come the difference of two, and the colour bars. Raises
    UsageError for grids that must not be compared.
    """
    shown = captions.checked_panels(panels, seed)
    place, compared, trained = layout(len(shown)), len(shown) == 2, shown[0][0].trained_digits
    means = [cell_means(grids) for grids in shown]
    note = [captions.footnote(shown), _SHORT_WORDS if place.brief else "", order]
    handles = [Patch(label="trained lengths", **_OUTLINE)]
    if compared:
        words = "no significant difference (false discovery rate 5 %, these runs only)"
        handles.append(Patch(label=words, facecolor=_GREY))
    with style.styled(place.letters):
        figure = style.page(
            min(7.3, place.columns * (place.side + 0.35) + 1.0),
            place.height,
            " ".join(filter(None, note)),
            handles,
            3,
            place.letters,
            compress=True,
        )
        axes = figure.subplots(place.rows, place.columns, squeeze=False).ravel()
        for number, (ax, grids, values) in enumerate(zip(axes, shown, means, strict=False)):
            mesh = _paint(ax, values, COLOURS, (0.0, 1.0), trained)
            lowest = number + place.columns >= len(shown)
            _label_axes(ax, len(values), place, left=number % place.columns == 0, bottom=lowest)
            lines = [captions.mean_line(grids, region, place.means) for region in place.means]
            lines.append(captions.seeds_line(grids))
            _write_title(ax, grids[0].name, lines, place, captions.convergence(grids))
        for ax in axes[len(shown) + compared :]:
            ax.remove()
        length = min(5.5, place.height - 0.8)
        bar = figure.colorbar(
            mesh,
            ax=axes[: len(shown)],
            label="exact match",
            ticks=[0, 0.25, 0.5, 0.75, 1],
            format=style.percent_tick,
            fraction=0.03,
            pad=0.03 if place.brief else 0.01,
            shrink=length / (place.height - 0.8),
            aspect=max(24.0, 12 * length),
            anchor=(0.0, 1.0),
        )
        bar.outline.set_linewidth(0.5)
        if compared:
            _draw_difference(figure, axes[2], shown, 100 * (means[0] - means[1]), place)
    return figure


def cell_means(grids: Panel) -> Floats:
    """Return float64[N, N]: mean over seeds of exact match."""
    return np.asarray(np.mean([grid.accuracy for grid in grids], axis=0), dtype=np.float64)


def significant(one: Panel, other: Panel) -> Bools:
    """Return bool[N, N]: the cells where two encodings differ.

    Problems are pooled over seeds and taken as independent: a grid holds counts, so nothing is
    made of both having answered the same ones.
    """
    counts = [sum(grid.exact for grid in one), sum(grid.total for grid in one)]
    counts += [sum(grid.exact for grid in other), sum(grid.total for grid in other)]
    return false_discovery(two_proportion(*counts), _DISCOVERY_RATE)


def difference_limit(points: Floats) -> int:
    """Return where the scale of a difference in percentage points ends."""
    largest = np.abs(points).max()
    return next(bound for bound in (10, 20, 40, 60, 80, 100) if largest <= bound + 1e-9)


def ticks(max_digits: int) -> list[int]:
    """Return the lengths to label: 1, then round ones.

    >>> ticks(16), ticks(80)
    ([1, 4, 8, 12, 16], [1, 20, 40, 60, 80])
    """
    sizes = [base * 10**power for power in range(6) for base in (1, 2, 4, 5)]
    step = min(size for size in sizes if max_digits <= 5 * size)
    return sorted({1, *range(step, max_digits + 1, step)})


def _paint(
    ax: Axes, values: Floats, colours: str, limits: tuple[float, float], trained_digits: int
) -> QuadMesh:
    """Draw float64[N, N] as cells with the square of trained lengths around some."""
    mesh = ax.pcolormesh(
        values,
        cmap=sns.color_palette(colours, as_cmap=True),
        vmin=limits[0],
        vmax=limits[1],
        # As an image in SVG and PDF: 6,400 vector squares are slow to open and show white seams.
        rasterized=True,
    )
    ax.set_aspect("equal")
    square = Rectangle((0, 0), trained_digits, trained_digits, **_OUTLINE)
    square.set(clip_on=False, zorder=3)
    ax.add_patch(square)
    return mesh


def _draw_difference(
    figure: Figure, ax: Axes, panels: Sequence[Panel], points: Floats, place: Layout
) -> None:
    """Draw the third panel: first minus second, grey where problems alone explain it."""
    limit = difference_limit(points)
    mesh = _paint(ax, points, DIFFERENCES, (-limit, limit), panels[0][0].trained_digits)
    ones = np.ma.masked_array(np.ones(points.shape), mask=significant(panels[0], panels[1]))
    ax.pcolormesh(ones, cmap=ListedColormap([_GREY]), vmin=0, vmax=1, rasterized=True)
    _label_axes(ax, len(points), place, left=False, bottom=True)
    first, second = panels
    lines = [captions.difference_line(first, second, region) for region in captions.MEANS]
    name = " \N{MINUS SIGN} ".join(panel[0].name for panel in panels)
    if style.text_width(name, 5, "bold") > 72 * place.side:  # cut short it would lose its sign
        name = "first \N{MINUS SIGN} second"
    _write_title(ax, name, [*lines, "these runs only"], place)
    bar = figure.colorbar(
        mesh,
        ax=[ax],
        label="difference, percentage points",
        ticks=[-limit, -limit / 2, 0, limit / 2, limit],
        format=lambda value, _: captions.signed(value, 0),
        fraction=0.05,
        pad=0.01,
        aspect=22,
    )
    bar.outline.set_linewidth(0.5)


def _label_axes(ax: Axes, max_digits: int, place: Layout, *, left: bool, bottom: bool) -> None:
    """Ticks in the middle of the cells of round lengths; words only at the figure's outer edge."""
    words = list(map(str, ticks(max_digits)))
    for axis, outer, operand in ((ax.xaxis, bottom, "second"), (ax.yaxis, left, "first")):
        axis.set_ticks([d - 0.5 for d in ticks(max_digits)], words if outer else [])
        if outer:
            axis.set_label_text(f"{'' if place.brief else 'length of '}{operand} operand")


def _write_title(
    ax: Axes, name: str, lines: Sequence[str], place: Layout, mark: str | None = None
) -> None:
    """Write above a panel its name, its means and its seeds, with a red mark if not converged."""
    width, step = 72 * place.side, _LINE * place.letters
    shown, size = style.fit(name, width, place.letters + 1.5, "bold")
    pad = 4 + step * len(lines)
    ax.set_title(shown, fontsize=size, fontweight="bold", loc="left", pad=pad)

    def write(text: str, row: int, space: float, x: float = 0.0, **look: Any) -> None:
        fitted, size = style.fit(text, space, place.letters, look.get("fontweight", "normal"))
        look |= {"fontsize": size, "xycoords": "axes fraction", "textcoords": "offset points"}
        ax.annotate(fitted, (0, 1), (x, 4 + step * row), **look).set_in_layout(False)

    for row, line in enumerate(reversed(lines)):
        write(line, row, 1.1 * width, color="#222222")
    if mark:
        start = style.text_width(lines[-1], place.letters) + 0.5 * place.letters
        write(f"· {mark}", 0, 1.1 * width - start, start, color="#b3261e", fontweight="bold")
