"""The comparison heatmap: exact match over operand lengths, a panel an encoding.

Shapes: N the longest operand scored.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from tape_arith.arith.figures import captions, panel
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.style import lines
from tape_arith.arith.scoring.comparisons import false_discovery, two_proportion
from tape_arith.arith.scoring.grid import Floats, Grid
from tape_arith.arith.scoring.regions import REGION_WORDS, Bools, Region

COLOURS = "viridis"
DIFFERENCES = "vlag"
DISCOVERY_RATE = 0.05


class Layout(NamedTuple):
    """`columns` x `rows` squares on a paper's width; all in inches, but `letters` in points."""

    columns: int
    rows: int
    side: float
    gap: float
    letters: float
    brief: bool = False
    """Whether a panel has two means in short words above it, not three."""

    @property
    def means(self) -> Mapping[Region, str]:
        """What is printed above a panel, and what it is called."""
        if self.brief:
            return captions.BRIEF
        return {region: REGION_WORDS[region] for region in captions.MEANS}

    @property
    def title(self) -> float:
        """Height of the lines above a panel: its name, the means, the seeds."""
        return (1.28 * self.letters * (len(self.means) + 1) + self.letters + 8) / 72

    @property
    def pitch(self) -> float:
        """From the top of one row of panels to the top of the next."""
        return self.side + self.title + (0.1 if self.brief else 0.24)


# Inches: room for the words of the axes, a colour bar without and with its words, the page's
# edge, the line of the legend.
LEFT, BELOW, BAR, BAR_ROOM, EDGE, LEGEND = 0.46, 0.38, 0.1, 0.72, 0.08, 0.22
MOST_LARGE, MOST_SMALL = 12, 30
"""So many panels are large, so many small; more are smaller still, so that fifty fit a page."""
LONGEST_BAR = 5.5
"""Inches, from the top."""


def layout(count: int) -> Layout:
    """Rows and columns for `count` encodings; with two a third panel holds the difference."""
    if count == 1:
        return Layout(1, 1, 2.6, 0.0, 7.0)
    if count == 2:
        return Layout(3, 1, 1.62, 0.2, 6.6)
    if count > MOST_LARGE:
        columns, side = (6, 0.93) if count <= MOST_SMALL else (7, 0.78)
        return Layout(columns, -(-count // columns), side, 0.14, 5.2, brief=True)
    columns = 3 if count in (3, 5, 6, 9) else 4
    side, gap, letters = (1.84, 0.26, 7.0) if columns == 3 else (1.42, 0.2, 6.2)
    return Layout(columns, -(-count // columns), side, gap, letters)


def draw(panels: Sequence[Panel], path: Path, seed: int | None = None, *, order: str = "") -> None:
    """Write the comparison to `path`, as PNG, SVG or PDF by its ending, whole or not at all.

    `panels` holds the grids (seeds) of each encoding; with `seed` only that one is shown. `order`
    is a sentence that says in which order they stand.
    Errors: UsageError for another ending and for grids that must not be compared; Failure where
    the disk refuses.
    """
    kind = figure_format(path)
    save(compose(panels, seed, order=order), path, kind)


def compose(panels: Sequence[Panel], seed: int | None = None, *, order: str = "") -> Figure:
    """The figure before it is written. Its first axes are the panels, in the order given; then
    come the difference where there are two, and the colour bars. Errors: UsageError as `draw`."""
    shown = captions.chosen(panels, seed)
    with mpl.rc_context(STYLE):
        return _Sheet(shown, order).figure


def cells(grids: Panel) -> Floats:
    """float64[N, N]: mean over seeds of exact match, nan where any seed misses the cell.

    Not the mean over the seeds that have it: neighbouring cells would speak of different runs.
    """
    return np.asarray(np.mean([grid.accuracy for grid in grids], axis=0), dtype=np.float64)


def significant(one: Panel, other: Panel) -> Bools:
    """bool[N, N]: the cells where two encodings differ, problems pooled over seeds and taken as
    independent: a grid holds counts, so nothing is made of both having answered the same ones."""
    counts = [sum(grid.exact for grid in one), sum(grid.total for grid in one)]
    counts += [sum(grid.exact for grid in other), sum(grid.total for grid in other)]
    return false_discovery(two_proportion(*counts), DISCOVERY_RATE)


class _Sheet:
    """The page: its size follows from the panels, in inches, so that no text meets another."""

    def __init__(self, panels: list[list[Grid]], order: str) -> None:
        self.panels = panels
        self.place = place = layout(len(panels))
        self.compared = len(panels) == 2
        self.missing = False
        across = place.columns * (place.side + place.gap) - place.gap
        self.width = LEFT + across + BAR_ROOM * (2 if self.compared else 1)
        note = [captions.footnote(panels), order]
        if place.brief:
            note.insert(
                1,
                "Axes: digits of the operands. Out: mean out of distribution; in: in distribution.",
            )
        text = " ".join(filter(None, note))
        self.note = lines(text, (self.width - 2 * EDGE) * 72, place.letters)
        note_height = len(self.note) * place.letters * 1.3 / 72
        self.bottom = EDGE + note_height + LEGEND + BELOW
        self.top = self.bottom + place.rows * place.pitch - place.pitch + place.side
        self.height = self.top + place.title + EDGE
        self.figure = Figure(figsize=(self.width, self.height), dpi=DPI)
        FigureCanvasAgg(self.figure)

        meshes = [self._encoding(number) for number in range(len(panels))]
        if self.compared:
            self._difference()
        after = 2 if self.compared else place.columns
        panel.colour_bar(
            self._bar(LEFT + after * (place.side + place.gap) - place.gap + 0.09),
            meshes[0],
            "exact match",
            [0, 0.25, 0.5, 0.75, 1],
            ["0 %", "25 %", "50 %", "75 %", "100 %"],
            place.letters,
        )
        self._foot(note_height)

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        box = (x / self.width, y / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def _bar(self, x: float) -> Axes:
        tall = min(self.top - self.bottom, LONGEST_BAR)
        return self._axes(x, self.top - tall, BAR, tall)

    def _encoding(self, number: int) -> QuadMesh:
        grids, place = self.panels[number], self.place
        row, column = divmod(number, place.columns)
        x = LEFT + column * (place.side + place.gap)
        y = self.top - row * place.pitch - place.side
        ax = self._axes(x, y, place.side, place.side)
        values = cells(grids)
        self.missing |= bool(np.isnan(values).any())
        mesh = panel.paint(ax, values, COLOURS, 0.0, 1.0)
        panel.outline(ax, grids[0].trained_digits)
        lowest = number + place.columns >= len(self.panels)
        sides = {"left": column == 0, "bottom": lowest}
        panel.axis(ax, len(values), place.letters, **sides, brief=place.brief)
        lines = [captions.mean_line(grids, region, place.means) for region in place.means]
        lines.append(captions.seeds_line(grids))
        panel.title(ax, grids[0].name, lines, captions.convergence(grids), place.letters)
        return mesh

    def _difference(self) -> None:
        """The third panel: first minus second, grey where problems alone explain it."""
        one, other = self.panels
        place, names = self.place, [grids[0].name for grids in self.panels]
        x = LEFT + 2 * (place.side + place.gap) - place.gap + BAR_ROOM + 0.12
        ax = self._axes(x, self.bottom, place.side, place.side)
        values = 100 * (cells(one) - cells(other))
        known = np.abs(values[~np.isnan(values)])
        largest = float(known.max()) if len(known) else 0.0
        limit = next(bound for bound in (10, 20, 40, 60, 80, 100) if largest <= bound)
        mesh = panel.paint(ax, values, DIFFERENCES, -limit, limit)
        panel.grey_out(ax, ~np.isnan(values) & ~significant(one, other))
        panel.outline(ax, one[0].trained_digits)
        panel.axis(ax, len(values), place.letters, left=False, bottom=True)
        lines = [captions.difference_line(one, other, region) for region in captions.MEANS]
        name = " \N{MINUS SIGN} ".join(names)
        title = panel.title(ax, name, [*lines, "these runs only"], None, place.letters)
        if title.get_text() != name:  # cut short it would lose its sign
            title.set_text("first \N{MINUS SIGN} second")
        panel.colour_bar(
            self._bar(x + place.side + 0.09),
            mesh,
            "difference, percentage points",
            [-limit, -limit / 2, 0, limit / 2, limit],
            [captions.signed(value, 0) for value in np.linspace(-limit, limit, 5)],
            place.letters,
        )

    def _foot(self, note_height: float) -> None:
        place = self.place
        grey = (
            "no significant difference (false discovery rate 5 %, these runs only)"
            if self.compared
            else None
        )
        self.figure.legend(
            handles=panel.legend(missing=self.missing, grey=grey),
            loc="lower left",
            bbox_to_anchor=(EDGE / self.width, (EDGE + note_height) / self.height),
            ncols=3,
            frameon=False,
            fontsize=place.letters,
            handlelength=1.2,
            handleheight=1.0,
            columnspacing=1.5,
            borderaxespad=0.0,
            borderpad=0.4,
        )
        self.figure.text(
            EDGE / self.width,
            EDGE / self.height,
            "\n".join(self.note),
            fontsize=place.letters,
            color="#444444",
            va="bottom",
            linespacing=1.3,
        )
