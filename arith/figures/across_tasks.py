"""Draw encodings by tasks: a heatmap of means out of distribution, and mean ranks."""

from math import asin, degrees, radians, sin
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.captions import NBSP, ONE_SEED
from tape_arith.arith.compare.task_table import TaskTable, signs
from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures import style
from tape_arith.arith.figures.text import SMALLEST, fit, text_width
from tape_arith.arith.grids.panel import Panel

_CELL, _NAMES, _RANKS, _ROW = 0.62, 1.25, 0.62, 0.2
"""Widths of a cell, of the names at most and of the mean ranks, and the height of a row, in inches.
"""
_BAR = 0.45
"""Height of the colour bar with its numbers, in inches."""
_LETTERS = 6.5


@style.styled(_LETTERS)
def compose(table: TaskTable, *, width: float | None = None, caption: bool = True) -> Figure:
    """Return the heatmap of encodings by tasks; its first axes has a unit square for each cell.

    Rows go down from 0, with room for the title of each section. Raises UsageError if the numbers
    in cells of this `width` could not be read.
    """
    heights, titles = _heights(table)
    bottom, heads = max(heights.values()) + 1, table.tasks
    width = width or float(np.clip(_NAMES + _CELL * len(heads) + _RANKS, 3.4, 7.2))
    names = [fit(table.label(line.encoding), 72 * _NAMES - 8, _LETTERS) for line in table.rows]
    longest = max(text_width(name, size) for name, size in names) / 72
    cell = 72 * (width - longest - 0.2 - _RANKS) / len(heads)
    numbers = [text_width(_number(panel), _LETTERS) for panel in table.panels]
    letters = _LETTERS * min(1, 0.92 * cell / max(numbers, default=1))
    if letters < SMALLEST:
        raise UsageError(
            f"{len(heads)} tasks do not fit {width:g} inches: give a larger --width or fewer tasks"
        )
    head_widths = [text_width(head, _LETTERS) for head in heads]
    # Slanted heads are a line apart.
    angle = max(30.0, degrees(asin(min(1.0, 1.3 * _LETTERS / cell))))
    slanted = max(head_widths) > 0.95 * cell
    rise = max(head_widths) / 72 * sin(radians(angle))
    figure = style.page(
        width,
        bottom * _ROW + (0.25 + 1.05 * rise if slanted else 0.3) + _BAR,
        _note(table) if caption else "",
        letters=_LETTERS,
    )
    ax = figure.subplots()
    ax.set(xlim=(0, len(heads)), ylim=(bottom, 0))
    ax.xaxis.tick_top()
    turned: dict[str, Any] = {"rotation": angle, "ha": "left", "rotation_mode": "anchor"}
    ax.set_xticks(np.arange(len(heads)) + 0.5, heads, **(turned if slanted else {}))
    ax.set_yticks([y + 0.5 for y in heights.values()], [name for name, _ in names])
    ax.tick_params(length=0)
    for label, (_, size) in zip(ax.get_yticklabels(), names, strict=True):
        label.set_fontsize(size)
    ax.spines[:].set_visible(False)
    for line in table.rows:
        y = heights[line.encoding]
        for x, head in enumerate(heads):
            _draw_cell(ax, x, y, line.cells.get(head), letters)
        _write(ax, len(heads) + 0.08, y, table.rank_text(line, 1), ha="left")
    _write(ax, len(heads) + 0.08, -0.75, "mean rank", ha="left", color=style.GREY)
    for y, title in titles.items():
        _write(ax, 0, y, title, ha="left", fontweight="bold")
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), style.colours()),
        ax=ax,
        location="bottom",
        aspect=1.9 / 0.09,
        fraction=0.09 / (bottom * _ROW),
        pad=0.1 / (bottom * _ROW),
        label="exact match out of distribution",
        ticks=[0, 1],
        format=lambda share, _: "all right" if share else "as a guess",
    )
    bar.outline.set_linewidth(0.5)
    return figure


def _note(table: TaskTable) -> str:
    """Say in a sentence what was measured, in another how to read the mean rank and the signs."""
    uncounted = f"{table.uncounted[:1].lower()}{table.uncounted[1:]}".rstrip(".")
    clauses = [
        "Mean rank: among the encodings of a section, those told the tested length among the "
        "task-agnostic",
        uncounted,
        "in brackets the number of tasks that it is over" * table.has_counts,
        "*: not converged, or not known to be" * table.has_unranked,
        f"{ONE_SEED}: one seed" * table.has_one_seed,
        *(
            f"{runs.task}: {', '.join(words)}"
            for runs in table.runs
            if (words := [text for text in (runs.guess, runs.seen) if text])
        ),
    ]
    return (
        f"Exact match out of distribution, mean over seeds in{NBSP}%, of presets "
        f"{', '.join(runs.recipe for runs in table.runs)}. {'; '.join(filter(None, clauses))}."
    )


def _heights(table: TaskTable) -> tuple[dict[str, float], dict[float, str]]:
    """Return the y of each encoding, and the section titles by theirs; one section has no title."""
    heights: dict[str, float] = {}
    titles: dict[float, str] = {}
    y = 0.0
    for section in table.sections:
        if len(table.sections) > 1:
            titles[y] = section.title
            y += 1
        for line in section.rows:
            heights[line.encoding] = y
            y += 1
        y += 0.25
    return heights, titles


def _number(panel: Panel) -> str:
    mean = panel.mean("out_of_distribution")
    return "-" if mean is None else f"{100 * mean:.1f}{signs(panel)}"


def _draw_cell(ax: Axes, x: int, y: float, panel: Panel | None, letters: float) -> None:
    """Draw a cell, in a colour from a guess to all right, and write its mean."""
    mean = None if panel is None else panel.mean("out_of_distribution")
    if panel is None or mean is None:
        _write(ax, x + 0.5, y, "-", color=style.GREY)
        return
    guess = captions.chance(panel.task) or 0.0
    colour: Any = style.colours()(max(0.0, mean - guess) / (1 - guess))
    ink = "w" if np.dot(colour[:3], (0.299, 0.587, 0.114)) < 0.5 else "k"
    ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
    _write(ax, x + 0.5, y, _number(panel), color=ink, fontsize=letters)


def _write(ax: Axes, x: float, y: float, text: str, **look: Any) -> None:
    usual: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": _LETTERS}
    ax.text(x, y + 0.5, text, **usual | look)
