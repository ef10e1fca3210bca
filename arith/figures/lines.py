"""Exact match over the length of a number, or of the longer of two: a line per encoding."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.captions import NBSP
from tape_arith.arith.compare.labels import prior_word
from tape_arith.arith.compare.lengths import longer_label, ticks
from tape_arith.arith.figures import style
from tape_arith.arith.figures.layout import Looks
from tape_arith.arith.figures.looks import Look, looks_of
from tape_arith.arith.grids.axes import REGION_WORDS, Region, ScoredAxis
from tape_arith.arith.grids.panel import Panel

_MOST_LINES = 6
"""The most lines that one panel shows."""
_TRAINED = "#ececec"
_ALONE, _WIDTH, _PANEL = 4.6, 7.2, 2.3
"""Widths of a page of one panel and of several, and least width of a panel, in inches."""
_BANDS = f"bands: the 95{NBSP}% interval at each length"
_BRIEF: Mapping[Region, str] = {"out_of_distribution": "out"}
"""The label of a mean in a long legend."""
_BRIEF_WORDS = "out: mean out of distribution"


def compose(panels: Sequence[Panel], labels: Mapping[str, str], order: str, look: Looks) -> Figure:
    """Return the figure of `panels`, in their order.

    Up to six encodings share a panel; the panels share one legend, which has their means. The
    caller sets the style (`style.styled`), because `look` names the font.
    """
    axis = next(axis for axis in panels[0].axes if axis.counts == "digits")
    groups = np.array_split(np.arange(len(panels)), -(-len(panels) // _MOST_LINES))
    width = look.width or (_ALONE if len(groups) == 1 else _WIDTH)
    columns = min(len(groups), look.columns or max(1, int(width / _PANEL)))
    rows = -(-len(groups) // columns)
    brief = len(groups) > 1
    looks = looks_of(panel.name for panel in panels)
    has_means = look.numbers != "none"
    handles = [
        Line2D([], [], label=_legend(panel, labels, brief, has_means), **looks[panel.name].line)
        for panel in panels
    ]
    clauses = [_BANDS, _BRIEF_WORDS * (brief and has_means), order]
    guess = captions.chance(panels[0].task)
    if guess:
        handles.append(Line2D([], [], label="a guess", **style.GUESS))
    note = captions.caption(panels, labels, clauses, captions.MEANS[:has_means])
    figure = style.page(
        width,
        rows * (0.5 + min(1.9, 0.5 * width / columns)),
        note if look.caption else "",
        [Patch(color=_TRAINED, label="trained lengths"), *handles] if look.legend else (),
    )
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for ax in axes[len(groups) :]:
        ax.remove()
    for number, (ax, group) in enumerate(zip(axes, groups, strict=False)):
        for panel in (panels[place] for place in group):
            _draw(ax, panel, looks[panel.name])
        if guess:
            ax.axhline(guess, zorder=1, **style.GUESS)
        title = f"encodings {group[0] + 1} to {group[-1] + 1}" if brief else ""
        _finish(ax, axis, title, look.vmax / 100)
        ax.set_xlabel(longer_label(panels[0].axes) if number + columns >= len(groups) else "")
        ax.set_ylabel("exact match" if number % columns == 0 else "")
        ax.tick_params(labelbottom=True)
    return figure


def _legend(panel: Panel, labels: Mapping[str, str], brief: bool, has_means: bool) -> str:
    words = _BRIEF if brief else REGION_WORDS
    mean = f": {captions.mean_line(panel, 'out_of_distribution', words)}" * has_means
    line = f"{labels[panel.name]}{mean}"
    return " · ".join(filter(None, [line, prior_word(panel), panel.convergence]))


def _draw(ax: Axes, panel: Panel, look: Look) -> None:
    """Draw the mean over seeds as a line, and its interval as a band."""
    means = panel.by_length()
    low, high = zip(*panel.length_intervals().values(), strict=True)
    ax.fill_between([*means], low, high, color=look.colour, alpha=0.18, linewidth=0, zorder=2)
    ax.plot([*means], [*means.values()], zorder=3, **look.line)


def _finish(ax: Axes, axis: ScoredAxis, title: str, end: float) -> None:
    ax.axvspan(axis.shortest - 0.5, axis.trained + 0.5, color=_TRAINED, linewidth=0, zorder=0)
    ax.set(xlim=(axis.shortest - 0.5, axis.tested + 0.5), ylim=(-0.03 * end, 1.03 * end))
    ax.set_xticks(ticks(axis.tested, axis.shortest))
    ax.yaxis.set_major_formatter(style.percent_tick)
    style.finish(ax, title)
