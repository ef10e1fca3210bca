"""A figure of attention as a page: sizes in inches, a note at its foot."""

from collections.abc import Iterable, Sequence
from typing import Any

import seaborn as sns
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from tape_arith.arith.figures.figure_file import DPI
from tape_arith.arith.figures.style import LETTERS

GREY = "#444444"
RED = "#e0452f"
EDGE = 0.08  # inches
HUES = (0, 1, 2, 4, 5, 9, 3, 8, 6, 7)
"""Seaborn's colours in an order in which hues that are alike stand far apart."""
Colour = tuple[float, float, float]


def colours(labels: Iterable[str]) -> dict[str, Colour]:
    """The colour of each encoding, the same in all figures of a study."""
    palette = sns.color_palette("colorblind")
    return {label: palette[HUES[number % len(HUES)]] for number, label in enumerate(labels)}


def page(width: float, height: float, note: Sequence[str]) -> Figure:
    """An empty figure, `width` x `height` inches, with the lines of `note` at its foot."""
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(
        EDGE / width,
        0.05 / height,
        "\n".join(note),
        fontsize=LETTERS,
        color=GREY,
        va="bottom",
        linespacing=1.3,
    )
    return figure


def box(
    inches: tuple[float, float, float, float], width: float, height: float
) -> tuple[float, float, float, float]:
    """Left, bottom, width and height in inches as shares of the page, as matplotlib takes them."""
    x, y, wide, high = inches
    return x / width, y / height, wide / width, high / height


def colour_bar(
    figure: Figure, image: AxesImage, inches: tuple[float, float, float, float], label: str
) -> None:
    """The scale of `image`, which goes from 0 to 1, in a box of so many inches."""
    width, height = figure.get_size_inches()
    bar = figure.colorbar(image, cax=figure.add_axes(box(inches, width, height)), ticks=[0, 0.5, 1])
    bar.set_label(label, fontsize=LETTERS, labelpad=2)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    bar.outline.set_linewidth(0.5)


def legend(figure: Figure, handles: Sequence[Any], y: float, x: float) -> None:
    """What the lines are, four beside each other; `x`, `y` are shares of the page."""
    figure.legend(
        handles=list(handles),
        loc="lower left",
        bbox_to_anchor=(x, y),
        ncols=4,
        frameon=False,
        fontsize=LETTERS,
        handlelength=2.6,
        columnspacing=1.4,
        borderaxespad=0.0,
        borderpad=0.2,
    )
