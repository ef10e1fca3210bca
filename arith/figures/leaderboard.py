"""The leaderboard as a figure for one column of a paper: a row per encoding, a point per seed."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from tape_arith.arith.compare.board import Board, Row, Section
from tape_arith.arith.compare.captions import NBSP, left_out, percent_alone
from tape_arith.arith.compare.lengths import cell
from tape_arith.arith.figures import style
from tape_arith.arith.figures.text import fit, text_width
from tape_arith.arith.grids.axes import Region
from tape_arith.arith.grids.panel import Panel

_PAGE_WIDTH, _ROW = 3.4, 0.135
"""Width of a paper's column and height of a row, in inches."""
_LOW, _TALL = 3.1, 20
"""Rows for which there is room at least, as matplotlib's layout needs it; and rows above which the
numbers of the scale also stand at the top."""
_NAMES = 86.0
"""Greatest width of a name in a figure that wide, in points."""
_COLUMNS = {"mean": 23, "in dist.": 47, "seeds": 66}
"""Columns of numbers, and how far right of the axes each ends, in points."""
_MEANS: tuple[Region, ...] = ("out_of_distribution", "in_distribution")
LETTERS = 6.0
COLOUR, NOT_RANKED = "#1f5f8b", "#9a9a9a"
INTERVAL: dict[str, Any] = {"linewidth": 2.0, "alpha": 0.35, "solid_capstyle": "butt"}
_SEED: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 2.8, "mew": 0.3, "mec": "w"}
_ALONE: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 3, "mew": 0.8, "mfc": "w"}
_MEAN: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 6.5, "mew": 1.1}


@style.styled(LETTERS)
def compose(
    board: Board,
    *,
    width: float | None = None,
    caption: bool = True,
) -> Figure:
    """Return the figure; its only axes has percent from left to right and rows from the top."""
    values = [v for panel in board.panels for v in panel.seed_means("out_of_distribution")]
    # The axis shows all seeds but may cut intervals off: the interval of a few seeds far apart
    # would leave little room for all the rest.
    end = round(100 * style.scale_end(max(values, default=1.0)))
    signs = seed_signs(board.panels, grey=not all(row.rank for row in board.rows))
    note = _note(board, end) if caption else ""
    figure, ax = rows_page(board, _COLUMNS, width, note, signs)
    ax.set_xlim(-0.015 * end, 1.015 * end)
    step = {2: 0.5, 5: 1, 10: 2, 20: 5, 40: 10}.get(end, 20)
    ax.set_xticks([step * n for n in range(int(end / step) + 1)])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel(f"exact match out of distribution,{NBSP}%")
    for y, row in heights(board)[1].items():
        colour, ink = (COLOUR, "black") if row.rank else (NOT_RANKED, NOT_RANKED)
        draw_seeds(ax, y, row.panel, "out_of_distribution", colour)
        means = [percent_alone(row.panel.mean(region)) for region in _MEANS]
        write_columns(ax, y, _COLUMNS, [*means, str(len(row.panel.seeds))], ink)
    return figure


def heights(board: Board) -> tuple[dict[float, Section[Row]], dict[float, Row]]:
    """Return titles and encodings by their y, counted in rows; half a row parts the sections."""
    titles: dict[float, Section[Row]] = {}
    rows: dict[float, Row] = {}
    y = 0.5
    for section in board.sections:
        titles[y] = section
        rows |= {y + number: row for number, row in enumerate(section.rows, start=1)}
        y += len(section.rows) + 1.5
    return titles, rows


def rows_page(
    board: Board,
    columns: Mapping[str, float],
    width: float | None,
    note: str,
    handles: Sequence[Artist],
) -> tuple[Figure, Axes]:
    """Make a page with the names of rows, the titles of sections, the heads of `columns`.

    The scale is at both ends of a tall axes.
    """
    width, (titles, placed) = width or _PAGE_WIDTH, heights(board)
    bottom = max(_LOW, max(placed) + 0.6)
    figure = style.page(width, bottom * _ROW + 0.42, note, handles, 2, LETTERS)
    ax = figure.subplots()
    ax.set_ylim(bottom, 0)
    room = _NAMES * width / _PAGE_WIDTH
    names = [fit(board.label(row.panel.name), room, LETTERS) for row in placed.values()]
    ax.set_yticks(list(placed), [name for name, _ in names])
    style.finish(ax, grid="x")
    ax.spines.left.set_visible(False)
    ax.tick_params(axis="y", length=0, pad=3)
    if bottom > _TALL:
        ax.tick_params(axis="x", top=True, labeltop=True)
    labels = zip(ax.get_yticklabels(), names, strict=True)
    for (label, (_, size)), row in zip(labels, placed.values(), strict=True):
        ink = "black" if row.rank else NOT_RANKED
        label.set(fontsize=size, color=ink, va="center_baseline")
    write_columns(ax, -0.6, columns, list(columns), style.GREY)
    for y, section in titles.items():
        _write_title(figure, ax, y, section)
    return figure, ax


def draw_seeds(ax: Axes, y: float, panel: Panel, region: Region, colour: str) -> list[float]:
    """Draw an interval, over it the seeds as points and their mean; a single seed is a diamond.

    Returns the seeds and the ends of the interval, in percent.
    """
    ax.axhline(y, color="#efefef", linewidth=0.5, zorder=0)
    values, interval = [100 * v for v in panel.seed_means(region)], panel.interval(region)
    sign = _SEED if len(panel.seeds) > 1 else _ALONE
    ax.plot(values, [y] * len(values), **sign, color=colour, zorder=3, clip_on=False)
    if interval is None or len(panel.seeds) == 1:
        return values
    ends = [100 * interval.low, 100 * interval.high]
    ax.plot(ends, [y, y], **INTERVAL, color=colour, zorder=2)
    ax.plot(100 * interval.mean, y, **_MEAN, color=colour, zorder=4, clip_on=False)
    return values + ends


def seed_signs(panels: Sequence[Panel], *, grey: bool = False) -> list[Line2D]:
    """Return a legend handle for each sign of `panels`, and with `grey` one for "not ranked"."""
    signs: dict[str, dict[str, Any]] = {}
    if any(len(panel.seeds) > 1 for panel in panels):
        signs |= {"a seed (training run)": _SEED, "their mean": _MEAN}
        signs[f"95{NBSP}% interval over seeds (Student{NBSP}t)"] = INTERVAL
    if any(len(panel.seeds) == 1 for panel in panels):
        signs["one seed: over problems"] = _ALONE
    handles = [Line2D([], [], color=COLOUR, **sign, label=label) for label, sign in signs.items()]
    square: dict[str, Any] = {"linestyle": "", "marker": "s", "markersize": 4}
    return handles + grey * [Line2D([], [], color=NOT_RANKED, **square, label="not ranked")]


def _write_title(figure: Figure, ax: Axes, y: float, section: Section[Row]) -> None:
    """Write a section's title at the left edge of the page, then why it is separate."""
    place: dict[str, Any] = {"xycoords": (figure.transFigure, ax.transData)}
    _annotate(ax, section.title, (0, y), 4, fontweight="bold", **place)
    if section.reason:
        start = 8 + text_width(section.title, LETTERS, "bold")
        # A white box hides the lines of the grid behind the words.
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        reason = _annotate(ax, section.reason, (0, y), start, color=style.GREY, bbox=paper, **place)
        style.fit_later(reason, uncut=True)


def write_columns(
    ax: Axes, y: float, columns: Mapping[str, float], texts: Sequence[str], colour: str
) -> None:
    """Write a text for each of `columns` to the right of the axes, `y` rows down."""
    place: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "ha": "right"}
    for text, end in zip(texts, columns.values(), strict=True):
        _annotate(ax, text, (1, y), end, color=colour, **place).set_in_layout(True)


def _annotate(ax: Axes, text: str, at: tuple[float, float], x: float, **look: Any) -> Annotation:
    """Write `text` `x` points right of `at`; the layout makes no room for it."""
    look |= {"textcoords": "offset points", "annotation_clip": False, "va": "center_baseline"}
    note = ax.annotate(text, at, (x, 0), fontsize=LETTERS, **look)
    note.set_in_layout(False)
    return note


def _note(board: Board, end: int) -> str:
    sentences = [
        board.source,
        f"Rows by their mean over the {cell(board.panels[0].axes)}s out of distribution; in dist.: "
        f"mean,{NBSP}%.",
    ]
    intervals = [panel.interval("out_of_distribution") for panel in board.panels]
    if any(each and each.of == "seeds" and 100 * each.high > end for each in intervals):
        sentences.append(f"The scale ends at {end}{NBSP}%, and intervals with it.")
    return " ".join([*sentences, *left_out(board.left_out)])
