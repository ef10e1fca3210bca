"""Stability under positional shifts over layers, drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from tape_arith.arith.figures.style import (
    LETTERS,
    STYLE,
    figure_format,
    finish,
    page,
    save,
    series_styles,
)
from tape_arith.arith.studies.stability_data import (
    ATTENTION,
    CHANGES,
    MEASURES,
    PRODUCTS,
    RENORMALISED,
    ROUNDING,
    UNTRAINED,
    Precision,
    Series,
    StabilityStudy,
)

BAND = "#e9e9e9"
RAW, ZERO = (0, (1, 1.5)), "x"
LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.2, "markeredgewidth": 0.7}
THIN: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.5, "markersize": 0, "zorder": 2}


def draw(study: StabilityStudy, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending. Raises UsageError for another
    ending, Failure if the disk refuses."""
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(study), path, kind)


def compose(study: StabilityStudy) -> Figure:
    """The figure before it is written: a row for attention weights, one for inner products if any
    encoding has them; a column a change. The finer of two precisions is drawn."""
    precision: Precision = max(one.precision for one in study.series)
    series = [one for one in study.series if one.precision == precision and one.values]
    rows = [[ATTENTION, RENORMALISED]]
    if any(one.measure == PRODUCTS for one in series):
        rows.append([PRODUCTS])
    styles = {
        label: {**style, **LINE}
        for label, style in series_styles(dict.fromkeys(one.label for one in study.series)).items()
    }
    figure = page(6.7, 2.1 * len(rows), _note(study, precision), _handles(study, series, styles), 3)
    grid = figure.subplots(len(rows), len(CHANGES), squeeze=False)
    for axes, measures in zip(grid, rows, strict=True):
        row = [one for one in series if one.measure in measures]
        for ax, (change, title) in zip(axes, CHANGES.items(), strict=True):
            # Shifts share a scale, so that they compare; [BOS] in front has its own.
            alike = [one for one in row if (one.change == "BOS") == (change == "BOS")]
            lowest = _scale(ax, alike, ROUNDING[precision], behind_bos=change == "BOS")
            drawn = [one for one in row if one.change == change]
            for one, thin in _lines(drawn):
                _draw_line(ax, one, styles[one.label], thin, lowest, ROUNDING[precision])
            if not drawn:
                ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", fontsize=LETTERS)
            ax.set_xlabel("layer")
            finish(ax, title, grid="both")
        axes[0].set_ylabel(f"relative change,\n{MEASURES[measures[0]]}")
    return figure


def _scale(ax: Axes, alike: Sequence[Series], small: float, *, behind_bos: bool) -> float:
    """Set the scales and draw the band of what is not told from rounding; returns the lowest value
    above it that keeps its place, if the band is a place of its own."""
    large = [value for one in alike for value in one.values or () if value > small]
    high = 3 * max([*large, 1.0])
    low, top = small * 1e-4, small
    # Behind [BOS] all that is not rounding lies within a few decades: the band stands below them.
    if behind_bos:
        top = min([*large, 0.1]) / 2
        low = top * (top / high) ** 0.2
    ax.axhspan(low, top, color=BAND, linewidth=0, zorder=0)
    ax.set(yscale="log", ylim=(low, high))
    ticks = LogLocator(numticks=7).tick_values(low, high)
    ax.set_yticks([tick for tick in ticks if (top if behind_bos else low) <= tick <= high])
    ax.yaxis.set_minor_locator(NullLocator())
    layers = max((len(one.values) for one in alike if one.values), default=1)
    ax.set_xlim(1 - 0.06 * layers, 1.06 * layers)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return top if behind_bos else low


def _lines(drawn: Sequence[Series]) -> Iterator[tuple[Series, bool]]:
    """The series to draw, and which are thin: a single run; of several runs their mean and, thin,
    each of them, but for raw ones behind [BOS], which would hide the others."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in drawn:
        groups.setdefault((one.label, one.measure), []).append(one)
    for runs in groups.values():
        if len(runs) == 1 or len({len(one.values or ()) for one in runs}) > 1:
            yield from ((one, False) for one in runs)
            continue
        if not _is_raw(runs[0]):
            yield from ((one, True) for one in runs)
        columns = zip(*(one.values or () for one in runs), strict=True)
        yield replace(runs[0], values=tuple(fmean(column) for column in columns)), False


def _is_raw(one: Series) -> bool:
    return one.change == "BOS" and one.measure == ATTENTION


def _draw_line(
    ax: Axes, one: Series, style: dict[str, Any], thin: bool, lowest: float, small: float
) -> None:
    """A line over layers; an exact 0 is a cross at the bottom, and behind [BOS] what is not told
    from rounding stands in the band, unconnected."""
    hollow = one.change == "BOS" and not one.leading_bos
    look = {**style, "markerfacecolor": "white" if hollow else style["color"], "zorder": 3}
    look |= {"clip_on": False, **(THIN if thin else {})}
    values = np.array(one.values)
    layers, zero = np.arange(1, len(values) + 1), values == 0
    bottom = ax.get_ylim()[0]
    if one.change == "BOS":
        within = (values <= small) & ~zero
        middle = np.full(within.sum(), (bottom * lowest) ** 0.5)
        ax.plot(layers[within], middle, **{**look, "linestyle": ""})
        values = np.where(within, np.nan, values)
    values = np.where(zero, np.nan, np.maximum(values, bottom))
    ax.plot(layers, values, linestyle=RAW if _is_raw(one) else "-", **look)
    crosses = {**look, "marker": ZERO, "linestyle": ""}
    ax.plot(layers[zero], np.full(zero.sum(), bottom), **crosses)


def _handles(
    study: StabilityStudy, series: Sequence[Series], styles: dict[str, dict[str, Any]]
) -> list[Artist]:
    """A handle for each encoding and each sign that the figure uses."""
    grey: dict[str, Any] = {**LINE, "color": "#555555"}
    handles: list[Artist] = [Line2D([], [], label=label, **look) for label, look in styles.items()]
    handles.append(Patch(facecolor=BAND, label="not told from rounding"))
    handles.append(Line2D([], [], linestyle=RAW, label="raw, not renormalised", **grey))
    if any(0.0 in (one.values or ()) for one in series):
        handles.append(Line2D([], [], linestyle="", marker=ZERO, label="exactly 0", **grey))
    if study.untrained_bos:
        handles.append(Line2D([], [], marker="o", markerfacecolor="white", label=UNTRAINED, **grey))
    return handles


def _note(study: StabilityStudy, precision: Precision) -> str:
    seeds = "Mean over runs (seeds), each run a thin line"
    return (
        f"{seeds if study.several_seeds else 'One run each'}, in {precision}, these runs only. "
        "Change: mean |difference| over mean |value|, over keys up to the query, heads and "
        "problems; behind [BOS] of the original tokens, with rows that sum to 1 again, and raw. "
        f"Band: at most {ROUNDING[precision]:g}, not told from rounding (behind [BOS] it stands "
        "below the scale). Inner products are those of the state that a layer's attention uses. "
        f"{study.source}"
    )
