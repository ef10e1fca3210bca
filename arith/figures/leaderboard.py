"""The leaderboard as a figure: a row an encoding, its seeds as points, on one column of a paper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from tape_arith.arith.figures.captions import NBSP, places
from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.leaderboard_data import Board, Standing
from tape_arith.arith.figures.looks import bound
from tape_arith.arith.figures.style import lines
from tape_arith.arith.scoring.statistics import Interval

# Inches: the page (a paper's column) and its edge, a row, the heads above and the axis below.
WIDTH, EDGE, ROW, ABOVE, BELOW, SIGN = 3.4, 0.05, 0.135, 0.24, 0.29, 0.115
# Inches: the widest column of names, and where the columns right of the points end.
NAMES, COLUMNS = 1.2, (0.32, 0.65, 0.92)
LETTERS, SMALLEST = 6.0, 4.2
COLOUR, GREY, WORDS = "#1f5f8b", "#9a9a9a", "#444444"
SEED: dict[str, Any] = {"marker": "o", "s": 8, "linewidth": 0.3, "edgecolor": "white"}
ALONE: dict[str, Any] = {"marker": "D", "s": 9, "facecolor": "white", "linewidth": 0.8}
MEAN: dict[str, Any] = {"marker": "|", "s": 42, "linewidth": 1.1}
INTERVAL: dict[str, Any] = {"linewidth": 2.0, "alpha": 0.35}


class Line(NamedTuple):
    """One line of the figure: an encoding, or the title of a section and why it stands apart."""

    y: float
    """Rows from the top, to the line's middle."""
    title: str
    why: str
    standing: Standing | None

    @property
    def colour(self) -> str:
        return COLOUR if self.standing and self.standing.rank else GREY


def draw(board: Board, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all.

    Errors: UsageError for another ending; Failure where the disk refuses.
    """
    kind = figure_format(path)
    save(compose(board), path, kind)


def placed(board: Board) -> Iterator[Line]:
    """Every line with its place; sections stand half a row apart."""
    y = 0.5
    for number, (title, why, standings) in enumerate(board.sections):
        y += 0.5 if number else 0.0
        yield Line(y, title, why, None)
        for standing in standings:
            y += 1
            yield Line(y, "", "", standing)
        y += 1


def compose(board: Board) -> Figure:
    """The figure before it is written; its one axes has percent across and rows down."""
    with mpl.rc_context(STYLE):
        return _Sheet(board).figure


class _Sheet:
    """The page: its height follows from the rows, in inches."""

    def __init__(self, board: Board) -> None:
        self.lines = list(placed(board))
        rows = [line for line in self.lines if line.standing]
        names = [line.standing.row.encoding for line in rows if line.standing]
        self.left = EDGE + min(max(width(name, LETTERS) for name in names), NAMES) + 0.08
        self.across = WIDTH - self.left - COLUMNS[-1] - EDGE
        tall = (self.lines[-1].y + 0.6) * ROW
        signs = _signs(rows)
        self.top = round(100 * bound(max(_shares(rows), default=1.0)))
        note = lines(_note(board, rows, self.top), 72 * (WIDTH - 2 * EDGE), LETTERS)
        note_height = len(note) * LETTERS * 1.3 / 72
        bottom = EDGE + note_height + SIGN * -(-len(signs) // 2) + 0.06 + BELOW
        height = bottom + tall + ABOVE
        self.figure = Figure(figsize=(WIDTH, height), dpi=DPI)
        FigureCanvasAgg(self.figure)
        box = (self.left / WIDTH, bottom / height, self.across / WIDTH, tall / height)
        self.ax = self.figure.add_axes(box)
        self.ax.set_ylim(self.lines[-1].y + 0.6, 0)
        self._points(rows)
        self._axis(rows)
        self._words()
        self.figure.legend(
            handles=signs,
            loc="lower left",
            bbox_to_anchor=(EDGE / WIDTH, (EDGE + note_height) / height),
            handlelength=1.5,
            ncols=2,
            columnspacing=1.0,
            borderaxespad=0.0,
            borderpad=0.2,
            labelspacing=0.25,
            frameon=False,
            fontsize=LETTERS,
        )
        self.figure.text(
            EDGE / WIDTH,
            EDGE / height,
            "\n".join(note),
            fontsize=LETTERS,
            color=WORDS,
            va="bottom",
            linespacing=1.3,
        )

    def _points(self, rows: list[Line]) -> None:
        """Seeds as points, under them the interval, over them the mean; one seed is a diamond."""
        for line in rows:
            assert line.standing is not None
            mean = line.standing.row.means["out_of_distribution"]
            values = line.standing.row.values["out_of_distribution"]
            points = pd.DataFrame({"x": [100 * v for v in values if v is not None], "y": line.y})
            look: dict[str, Any] = {"ax": self.ax, "zorder": 3, "clip_on": False, "legend": False}
            if len(values) == 1:
                sns.scatterplot(points, x="x", y="y", **look, **ALONE, edgecolor=line.colour)
                continue
            sns.scatterplot(points, x="x", y="y", **look, **SEED, color=line.colour)
            if mean is not None:
                ends = (100 * mean.low, 100 * mean.high)
                self.ax.hlines(line.y, *ends, color=line.colour, zorder=2, **INTERVAL)
                self.ax.scatter([100 * mean.mean], [line.y], **MEAN, color=line.colour, zorder=4)

    def _axis(self, rows: list[Line]) -> None:
        top = self.top
        step = {2: 0.5, 5: 1, 10: 2, 20: 5, 40: 10}.get(top, 20)
        places = [step * n for n in range(int(top / step) + 1)]
        ax: Axes = self.ax
        ax.set(xlim=(-0.015 * top, 1.015 * top), xlabel="", ylabel="")
        ax.set_xticks(places, [f"{place:g}" for place in places])
        ax.set_xlabel(f"exact match out of distribution,{NBSP}%", fontsize=LETTERS, labelpad=2)
        ax.set_yticks([])
        ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
        ax.vlines(places, 0, ax.get_ylim()[0], color="#e4e4e4", linewidth=0.5, zorder=0)
        for line in rows:
            ax.axhline(line.y, color="#efefef", linewidth=0.5, zorder=0)
        sns.despine(ax=ax, left=True)

    def _words(self) -> None:
        heads = ("mean", "in dist.", "seeds")
        for head, x in zip(heads, COLUMNS, strict=True):
            self._text(self.across + x, -0.6, head, ha="right", color=WORDS)
        for line in self.lines:
            if line.standing is None:
                self._title(line)
                continue
            row, ranked = line.standing.row, line.standing.rank is not None
            colour = "black" if ranked else GREY
            self._text(-0.06, line.y, row.encoding, ha="right", color=colour, room=NAMES)
            told = [
                _percent(row.means[region]) for region in ("out_of_distribution", "in_distribution")
            ]
            for words, x in zip((*told, str(len(row.seeds))), COLUMNS, strict=True):
                self._text(self.across + x, line.y, words, ha="right", color=colour)

    def _title(self, line: Line) -> None:
        """Over the points' ground too, from edge to edge."""
        self._text(EDGE - self.left, line.y, line.title, weight="bold")
        if line.why:
            start = EDGE - self.left + width(f"{line.title}  ", LETTERS, "bold") + 0.04
            room = WIDTH - 2 * EDGE - (start + self.left)
            # The ground's lines stop at the words.
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            self._text(start, line.y, line.why, room=room, color=WORDS, bbox=paper)

    def _text(self, x: float, y: float, words: str, room: float = WIDTH, **style: Any) -> None:
        """Words at `x` inches right of the points' ground and `y` rows down, in letters that leave
        them in `room`."""
        weight = style.get("weight")
        while len(words) > 2 and width(words, SMALLEST, weight) > room:
            words = "\N{HORIZONTAL ELLIPSIS}" + words[2:]  # a name's end tells it from its like
        size = LETTERS * min(1.0, room / max(width(words, LETTERS, weight), 1e-9))
        self.ax.text(
            x / self.across,
            y,
            words,
            transform=self.ax.get_yaxis_transform(),
            fontsize=size,
            va="center_baseline",
            clip_on=False,
            **style,
        )


def width(words: str, size: float, weight: str | None = None) -> float:
    """Inches that `words` take in letters of `size` points."""
    style = FontProperties(family=STYLE["font.family"], weight=weight or "normal")
    return float(TextPath((0, 0), words, size=size, prop=style).get_extents().x1) / 72


def _percent(mean: Interval | None) -> str:
    return f"{100 * mean.mean:.{places(mean.mean)}f}" if mean else "-"


def _shares(rows: list[Line]) -> list[float]:
    """All seeds are on the axis. Intervals may leave it: that of a few seeds far apart would push
    all the others together."""
    every = [line.standing.row.values["out_of_distribution"] for line in rows if line.standing]
    return [share for values in every for share in values if share is not None]


def _signs(rows: list[Line]) -> list[Line2D]:
    """A handle for each sign that the figure uses."""
    counts = {len(line.standing.row.seeds) for line in rows if line.standing}
    base: dict[str, Any] = {"color": COLOUR, "linewidth": 0}
    handles = []
    if counts - {1}:
        seeds = Line2D([], [], **base, marker="o", markersize=2.6, mew=0)
        seeds.set_label("a seed (training run)")
        mean = Line2D([], [], **base, marker="|", markersize=6, mew=1.1)
        mean.set_label("their mean")
        interval = Line2D([], [], color=COLOUR, **INTERVAL)
        interval.set_label(f"95{NBSP}% interval over seeds (Student{NBSP}t)")
        handles += [seeds, mean, interval]
    if 1 in counts:
        alone = Line2D([], [], **base, marker="D", markersize=3, mfc="white")
        alone.set(markeredgewidth=0.8, label="one seed: this run only")
        handles.append(alone)
    if any(line.standing and line.standing.rank is None for line in rows):
        grey = Line2D([], [], color=GREY, linewidth=0, marker="s", markersize=4)
        grey.set_label("not ranked")
        handles.append(grey)
    return handles


def _note(board: Board, rows: list[Line], top: int) -> str:
    told = [
        board.source,
        "Rows by their mean over the cells out of distribution; in dist.: mean, %.",
    ]
    means = [line.standing.row.means["out_of_distribution"] for line in rows if line.standing]
    if any(mean and mean.of == "seeds" and 100 * mean.high > top for mean in means):
        told.append(f"The scale ends at {top}{NBSP}%, and intervals with it.")
    told += [f"Left out: {runs}: {why}." for runs, why in board.left_out]
    return " ".join(told)
