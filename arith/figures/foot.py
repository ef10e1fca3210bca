"""What stands below a figure's panels: its legend, and the note that explains it."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure

LEFT, BOTTOM = 0.08, 0.05
"""Inches from the edges of the page."""


def put_legend(
    figure: Figure, handles: Sequence[Artist], bottom: float, columns: int, letters: float
) -> None:
    """The legend of the whole figure, `bottom` inches above its lower edge."""
    width, height = figure.get_size_inches()
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(LEFT / width, bottom / height),
        ncols=columns,
        frameon=False,
        fontsize=letters,
        handlelength=1.6,
        columnspacing=1.4,
        borderaxespad=0.0,
        borderpad=0.2,
    )


def put_note(figure: Figure, lines: Sequence[str], letters: float) -> None:
    """The note, already broken into lines, at the lower edge."""
    width, height = figure.get_size_inches()
    figure.text(
        LEFT / width,
        BOTTOM / height,
        "\n".join(lines),
        fontsize=letters,
        color="#444444",
        va="bottom",
        linespacing=1.3,
    )
