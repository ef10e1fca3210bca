"""The leaderboard as a figure: a row an encoding, its seeds as points, on one column of a paper."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Transform, blended_transform_factory

from tape_arith.arith.figures import style
from tape_arith.arith.figures.captions import NBSP, decimals
from tape_arith.arith.figures.leaderboard_data import Board, Standing
from tape_arith.arith.figures.tables import Row
from tape_arith.arith.scoring.regions import Region
from tape_arith.arith.scoring.statistics import Interval

# Inches: the page (a paper's column), its edge, a row, the widest name, where columns of numbers
# right of the points end.
_WIDTH, _EDGE, _ROW, _NAMES, _COLUMNS = 3.4, 0.05, 0.135, 1.2, (0.32, 0.65, 0.92)
_LETTERS = 6.0
COLOUR, NOT_RANKED = "#1f5f8b", "#9a9a9a"
_INTERVAL: dict[str, Any] = {"linewidth": 2.0, "alpha": 0.35}
_SEED: dict[str, Any] = {"marker": "o", "s": 8, "linewidth": 0.3, "edgecolor": "white"}
_ALONE: dict[str, Any] = {"marker": "D", "s": 9, "facecolor": "white", "linewidth": 0.8}
_MEAN: dict[str, Any] = {"marker": "|", "s": 42, "linewidth": 1.1}


class Line(NamedTuple):
    """One line of the figure: an encoding, or the title of a section and why it stands apart."""

    y: float
    """Rows from the top, to the line's middle."""
    title: str
    why: str
    standing: Standing | None


def draw(board: Board, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all.

    Raises UsageError for another ending, Failure if the disk refuses.
    """
    kind = style.figure_format(path)
    style.save(compose(board), path, kind)


def placed(board: Board) -> Iterator[Line]:
    """Yield every line with its place; sections stand half a row apart."""
    y = 0.5
    for number, (title, why, standings) in enumerate(board.sections):
        y += 0.5 if number else 0.0
        yield Line(y, title, why, None)
        for standing in standings:
            y += 1
            yield Line(y, "", "", standing)
        y += 1


def compose(board: Board) -> Figure:
    """Return the figure before it is written; its one axes has percent across and rows down."""
    lines = list(placed(board))
    standings = {line.y: line.standing for line in lines if line.standing}
    shares = [v for s in standings.values() for v in s.row.values["out_of_distribution"]]
    # All seeds are on the axis. Intervals may leave it: that of a few seeds far apart would push
    # all the others together.
    end = round(100 * style.scale_end(max((v for v in shares if v is not None), default=1.0)))
    bottom = lines[-1].y + 0.6
    rows = [standing.row for standing in standings.values()]
    signs = seed_signs(rows, grey=any(not s.rank for s in standings.values()))
    with mpl.rc_context(style.STYLE):
        note = _note(board, rows, end)
        figure = style.page(_WIDTH, bottom * _ROW + 0.42, note, signs, 2, _LETTERS)
        ax = figure.subplots()
        ax.set_ylim(bottom, 0)
        for y, standing in standings.items():
            ax.axhline(y, color="#efefef", linewidth=0.5, zorder=0)
            colour = COLOUR if standing.rank else NOT_RANKED
            draw_seeds(ax, y, standing.row, "out_of_distribution", colour)
            _write_numbers(ax, y, standing)
        _finish_axis(ax, end)
        _write_names(ax, standings)
        for line in lines:
            if line.standing is None:
                _write_title(ax, line, figure.transFigure)
    return figure


def draw_seeds(ax: Axes, y: float, row: Row, region: Region, colour: str) -> None:
    """Draw seeds as points, under them their interval, over them their mean; one is a diamond."""
    look: dict[str, Any] = {"zorder": 3, "clip_on": False}
    values = [100 * value for value in row.values[region] if value is not None]
    if len(row.seeds) == 1:
        ax.scatter(values, [y] * len(values), **look, **_ALONE, edgecolor=colour)
        return
    ax.scatter(values, [y] * len(values), **look, **_SEED, color=colour)
    mean = row.means[region]
    if mean is not None:
        ax.hlines(y, 100 * mean.low, 100 * mean.high, color=colour, zorder=2, **_INTERVAL)
        ax.scatter([100 * mean.mean], [y], **_MEAN, color=colour, zorder=4)


def seed_signs(rows: Sequence[Row], *, grey: bool = False) -> list[Line2D]:
    """Return a handle for each sign that `draw_seeds` used, and one for `grey` rows."""
    counts = {len(row.seeds) for row in rows}
    base: dict[str, Any] = {"color": COLOUR, "linewidth": 0}
    point: dict[str, Any] = {"marker": "o", "markersize": 2.6, "mew": 0}
    alone: dict[str, Any] = {"marker": "D", "markersize": 3, "mfc": "white", "mew": 0.8}
    interval = f"95{NBSP}% interval over seeds (Student{NBSP}t)"
    handles = []
    if counts - {1}:
        handles = [
            Line2D([], [], **base, **point, label="a seed (training run)"),
            Line2D([], [], **base, marker="|", markersize=6, mew=1.1, label="their mean"),
            Line2D([], [], color=COLOUR, **_INTERVAL, label=interval),
        ]
    if 1 in counts:
        handles.append(Line2D([], [], **base, **alone, label="one seed: this run only"))
    if grey:
        square: dict[str, Any] = {"linewidth": 0, "marker": "s", "markersize": 4}
        handles.append(Line2D([], [], color=NOT_RANKED, **square, label="not ranked"))
    return handles


def _finish_axis(ax: Axes, end: int) -> None:
    step = {2: 0.5, 5: 1, 10: 2, 20: 5, 40: 10}.get(end, 20)
    ax.set(xlim=(-0.015 * end, 1.015 * end))
    ax.set_xticks([step * n for n in range(int(end / step) + 1)])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel(f"exact match out of distribution,{NBSP}%", fontsize=_LETTERS, labelpad=2)
    ax.tick_params(axis="x", length=2, width=0.5, pad=1.5, labelsize=_LETTERS)
    ax.grid(visible=True, axis="x", color="#e4e4e4", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax, left=True)
    for head, x in zip(("mean", "in dist.", "seeds"), _COLUMNS, strict=True):
        _beside(ax, x, -0.6, head, color=style.GREY)


def _write_names(ax: Axes, standings: Mapping[float, Standing]) -> None:
    fitted = [style.fit(s.row.encoding, 72 * _NAMES, _LETTERS) for s in standings.values()]
    ax.set_yticks(list(standings), [name for name, _ in fitted])
    ax.tick_params(axis="y", length=0, pad=3)
    for label, (_, size), standing in zip(
        ax.get_yticklabels(), fitted, standings.values(), strict=True
    ):
        label.set(fontsize=size, color=_ink(standing), va="center_baseline")


def _write_numbers(ax: Axes, y: float, standing: Standing) -> None:
    """Right of the points: the mean, that in distribution, and the number of seeds."""
    means = standing.row.means
    words = [_percent(means["out_of_distribution"]), _percent(means["in_distribution"])]
    for text, x in zip((*words, str(len(standing.row.seeds))), _COLUMNS, strict=True):
        _beside(ax, x, y, text, color=_ink(standing))


def _write_title(ax: Axes, line: Line, page: Transform) -> None:
    """A section's title from edge to edge, over the points' ground too."""
    across = blended_transform_factory(page, ax.transData)
    title = f"{line.title}  " if line.why else line.title
    look: dict[str, Any] = {"transform": across, "va": "center_baseline", "clip_on": False}
    look["in_layout"] = False
    left, size = _EDGE / _WIDTH, _LETTERS
    ax.text(left, line.y, line.title, fontsize=size, weight="bold", **look)
    if line.why:
        start = style.text_width(title, _LETTERS, "bold") / 72 + 0.06
        why, size = style.fit(line.why, 72 * (_WIDTH - 2 * _EDGE - start), _LETTERS)
        # The ground's lines stop at the words.
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        at = left + start / _WIDTH
        ax.text(at, line.y, why, fontsize=size, color=style.GREY, bbox=paper, **look)


def _beside(ax: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Write `text` to end `x` inches right of the points' ground, `y` rows down."""
    ax.annotate(
        text,
        (1, y),
        xycoords=ax.get_yaxis_transform(),
        xytext=(72 * x, 0),
        textcoords="offset points",
        annotation_clip=False,
        fontsize=_LETTERS,
        ha="right",
        va="center_baseline",
        **look,
    )


def _ink(standing: Standing) -> str:
    return "black" if standing.rank else NOT_RANKED


def _percent(mean: Interval | None) -> str:
    return f"{100 * mean.mean:.{decimals(mean.mean)}f}" if mean else "-"


def _note(board: Board, rows: Sequence[Row], end: int) -> str:
    sentences = [
        board.source,
        "Rows by their mean over the cells out of distribution; in dist.: mean, %.",
    ]
    means = [row.means["out_of_distribution"] for row in rows]
    if any(mean and mean.of == "seeds" and 100 * mean.high > end for mean in means):
        sentences.append(f"The scale ends at {end}{NBSP}%, and intervals with it.")
    sentences += [f"Left out: {runs}: {why}." for runs, why in board.left_out]
    return " ".join(sentences)
