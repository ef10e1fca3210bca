"""One panel of a heatmap: cells, outline of the trained lengths, title lines, axes, colour bar.

Shapes: N the longest operand scored. Cell (i, j) is the unit square whose upper right corner is
(j, i): the first operand's length goes up, the second's to the right, and both start at 1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.scoring.regions import Bools

NOT_SIGNIFICANT = "#cfcfcf"
SMALLEST = 3.5
"""Points: smaller letters cannot be read in print."""
MISSING: dict[str, Any] = {"facecolor": "#f4f4f4", "edgecolor": "#8c8c8c", "hatch": "//////"}
OUTLINE: dict[str, Any] = {
    "fill": False,
    "edgecolor": "white",
    "linewidth": 0.7,
    # White on the dark end of the colours, black around it on the light end.
    "path_effects": [withStroke(linewidth=1.7, foreground="black")],
}


def paint(ax: Axes, values: Floats, colours: str | Colormap, low: float, high: float) -> QuadMesh:
    """Draw float64[N, N] as cells; those that are nan stay open and show the hatched ground."""
    lengths = range(1, len(values) + 1)
    sns.heatmap(
        pd.DataFrame(values, index=lengths, columns=lengths),
        mask=np.isnan(values),
        ax=ax,
        cmap=colours,
        vmin=low,
        vmax=high,
        cbar=False,
        xticklabels=False,
        yticklabels=False,
        # As an image in SVG and PDF: 6,400 vector squares are slow to open and show white seams.
        rasterized=True,
    )
    ax.set(ylim=(0, len(values)), xlabel="", ylabel="")  # seaborn puts the first row on top
    if np.isnan(values).any():
        ax.patch.set(**MISSING, linewidth=0)
    for spine in ax.spines.values():
        spine.set_visible(True)
    mesh = ax.collections[-1]
    assert isinstance(mesh, QuadMesh)
    return mesh


def grey_out(ax: Axes, cells: Bools) -> None:
    """Cover the cells of bool[N, N] with one grey."""
    edges = np.arange(len(cells) + 1)
    grey = ListedColormap([NOT_SIGNIFICANT])
    ones = np.ma.masked_array(np.ones(cells.shape), mask=~cells)
    ax.pcolormesh(edges, edges, ones, cmap=grey, vmin=0, vmax=1, rasterized=True)


def outline(ax: Axes, trained_digits: int) -> None:
    """The square of trained lengths."""
    square = Rectangle((0, 0), trained_digits, trained_digits, **OUTLINE)
    square.set(clip_on=False, zorder=3)
    ax.add_patch(square)


def ticks(max_digits: int) -> list[int]:
    """Lengths to label: 1, then round ones.

    >>> ticks(16), ticks(80)
    ([1, 4, 8, 12, 16], [1, 20, 40, 60, 80])
    """
    sizes = [base * 10**power for power in range(6) for base in (1, 2, 4, 5)]
    step = min(size for size in sizes if max_digits <= 5 * size)
    return sorted({1, *range(step, max_digits + 1, step)})


def axis(
    ax: Axes, max_digits: int, size: float, *, left: bool, bottom: bool, brief: bool = False
) -> None:
    """Ticks in the middle of the cells of round lengths; words only at the figure's outer edge,
    and with `brief` only which operand it is."""
    of = "" if brief else "length of "
    places = ticks(max_digits)
    middles, words = [place - 0.5 for place in places], [str(place) for place in places]
    ax.set_xticks(middles, words if bottom else [], rotation=0)
    ax.set_yticks(middles, words if left else [], rotation=0)
    ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=size)
    if bottom:
        ax.set_xlabel(f"{of}second operand", fontsize=size, labelpad=2)
    if left:
        ax.set_ylabel(f"{of}first operand", fontsize=size, labelpad=2)


def title(ax: Axes, name: str, lines: Sequence[str], mark: str | None, size: float) -> Any:
    """The name and its small lines above the panel, the last line followed by a red `mark`; the
    name as it is drawn."""
    leading = 1.28 * size

    def line(text: str, number: int, **style: Any) -> Any:
        return ax.annotate(
            text,
            (0, 1),
            xycoords="axes fraction",
            xytext=(0, 4 + leading * (len(lines) - number)),
            textcoords="offset points",
            annotation_clip=False,
            **{"fontsize": size, "va": "baseline", "ha": "left", **style},
        )

    label = line(name, 0, fontsize=size + 1.5, fontweight="bold")
    shrink(label, ax, 1.05)
    for number, text in enumerate(lines, start=1):
        last = line(text, number, color="#222222")
        if number == len(lines) and mark:
            end = 72 * _width(last, ax) / _figure(ax).dpi
            red = line(f" · {mark}", number, color="#b3261e", fontweight="bold")
            shrink(red, ax, 1.1 - end / (72 * ax.bbox.width / _figure(ax).dpi))
            red.set_position((end, red.get_position()[1]))
    return label


def shrink(label: Any, ax: Axes, share: float) -> None:
    """Make a name with many options small enough for `share` of the panel's width; of one that is
    longer still the end is shown, which tells it from its like."""
    room = share * ax.bbox.width
    wide = _width(label, ax)
    if wide > room:
        label.set_fontsize(max(label.get_fontsize() * room / wide, SMALLEST))
    while len(label.get_text()) > 2 and _width(label, ax) > 1.05 * room:
        label.set_text("\N{HORIZONTAL ELLIPSIS}" + label.get_text()[2:])


def _width(label: Any, ax: Axes) -> float:
    """Width of a text in pixels: only a renderer knows it."""
    canvas: Any = _figure(ax).canvas
    return float(label.get_window_extent(canvas.get_renderer()).width)


def _figure(ax: Axes) -> Figure:
    figure = ax.get_figure()
    assert isinstance(figure, Figure)
    return figure


def colour_bar(
    ax: Axes, mesh: QuadMesh, label: str, places: Sequence[float], words: Sequence[str], size: float
) -> None:
    bar = _figure(ax).colorbar(mesh, cax=ax, ticks=list(places))
    bar.set_label(label, fontsize=size, labelpad=2)
    bar.ax.set_yticklabels(list(words), fontsize=size)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5)
    bar.outline.set_linewidth(0.5)


def legend(*, missing: bool, grey: str | None) -> list[Patch]:
    """A handle for each sign that the figure uses."""
    handles = [Patch(label="trained lengths", **OUTLINE)]
    if missing:
        handles.append(Patch(label="not scored", linewidth=0.5, **MISSING))
    if grey:
        handles.append(Patch(label=grey, facecolor=NOT_SIGNIFICANT))
    return handles
