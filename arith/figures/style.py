"""The letters, marks and page that all figures share."""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any, Literal

import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import TextPath

from tape_arith.arith.figures.figure_file import DPI

LETTERS = 7.0
"""Size of a figure's small letters, in points."""
MARKERS = "osD^vPX*"
"""One mark a series, so that series differ in more than colour."""
LINE_HEIGHT = 1.35 * LETTERS / 72
"""Of a note's lines, in inches."""
GREY = "#444444"
MARGIN = 0.08
"""Around a page, in inches."""


def page(
    width: float, height: float, note: str, handles: Sequence[Artist] = (), columns: int = 4
) -> Figure:
    """An empty figure whose panels are laid out (matplotlib's constrained layout) above a legend
    of `handles` and a wrapped `note`.

    `width` is that of the page and `height` that of the panels with their labels, in inches.
    """
    text = lines(note, 72 * (width - 2 * MARGIN), LETTERS)
    note_height = len(text) * LINE_HEIGHT + MARGIN
    foot = note_height + (0.16 * -(-len(handles) // columns) + MARGIN if handles else 0.0)
    total = height + foot
    layout = ConstrainedLayoutEngine(
        w_pad=0.06, h_pad=0.05, wspace=0.03, hspace=0.03, rect=(0, foot / total, 1, height / total)
    )
    figure = Figure(figsize=(width, total), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    left = MARGIN / width
    look: Any = {"fontsize": LETTERS, "color": GREY, "va": "bottom", "linespacing": 1.3}
    figure.text(left, MARGIN / 2 / total, "\n".join(text), **look)
    if handles:
        figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(left, note_height / total),
            ncols=columns,
            frameon=False,
            fontsize=LETTERS,
            handlelength=2.0,
            columnspacing=1.4,
            borderaxespad=0.0,
            borderpad=0.2,
        )
    return figure


def finish(
    ax: Axes, title: str = "", grid: Literal["x", "y", "both"] = "y", pad: float = 4
) -> None:
    """Give a panel of lines, points or bars its title, small letters, a grid and no frame."""
    ax.set_title(title, fontsize=LETTERS + 0.5, fontweight="bold", loc="left", pad=pad)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_fontsize(LETTERS)
    ax.xaxis.labelpad = ax.yaxis.labelpad = 2
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.grid(visible=True, which="major", axis=grid, color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)
    for line in ax.lines:  # marks on the edge of a panel take no room around it
        line.set_in_layout(False)


def series_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The colour and the mark of each series."""
    palette = sns.color_palette("colorblind")
    return {
        name: {"color": palette[i % len(palette)], "marker": MARKERS[i % len(MARKERS)]}
        for i, name in enumerate(names)
    }


def percent_tick(share: float, _position: float = 0) -> str:
    """The label of a tick at `share`, with as many decimals as it has.

    >>> percent_tick(0.005), percent_tick(0.2)
    ('0.5\\xa0%', '20\\xa0%')
    """
    return f"{round(100 * share, 6):g}\N{NO-BREAK SPACE}%"


def lines(text: str, width: float, size: float) -> list[str]:
    """`text` in lines of at most `width`, in letters of `size`, all in points."""
    letters = int(width / (0.51 * size))  # of prose; digits and what stands between them are wider
    while letters > 1:
        made = wrap(text, letters)
        if all(TextPath((0, 0), line, size=size).get_extents().x1 <= width for line in made):
            return made
        letters -= 1
    return wrap(text, 1)
