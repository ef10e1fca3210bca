"""How speed scales: measured points on logarithmic axes, with the power law fitted to them.

Shapes: n points of a series.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.captions import NBSP
from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.foot import put_note
from tape_arith.arith.scoring.statistics import t_quantile

LETTERS = 7.0
MARKERS = "osD^vPX*"


class Fit(NamedTuple):
    """y = factor * x ** exponent; `half_width` is of the exponent's 95 % interval (Student t over
    the residuals of the logarithms), None for fewer than three points."""

    exponent: float
    factor: float
    half_width: float | None

    def text(self) -> str:
        """The exponent as people read it.

        >>> Fit(2.98, 3.0, 0.034).text()
        '2.98 ± 0.03'
        """
        arm = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.exponent:.2f}{arm}".replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Series:
    """The points of one encoding: sizes x, what was measured there, and its spread."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def fit(self) -> Fit | None:
        return power_law(self.x, self.y)


@dataclass(frozen=True)
class Panel:
    """One sweep: what was varied, what was measured, and a series an encoding."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]


def power_law(x: Sequence[float], y: Sequence[float]) -> Fit | None:
    """The power law through points, by least squares on their logarithms; None for fewer than two
    different sizes.

    >>> round(power_law([1, 2, 4, 8], [3, 12, 48, 192]).exponent, 9)
    2.0
    """
    if len(set(x)) < 2:
        return None
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    around = log_x - log_x.mean()
    exponent = float((around * log_y).sum() / (around**2).sum())
    constant = float(log_y.mean() - exponent * log_x.mean())
    half_width = None
    if len(x) > 2:
        residuals = log_y - constant - exponent * log_x
        error = (residuals**2).sum() / (len(x) - 2) / (around**2).sum()
        half_width = float(t_quantile(0.975, len(x) - 2) * error**0.5)
    return Fit(exponent, float(np.exp(constant)), half_width)


def draw(panels: Sequence[Panel], path: Path, note: str) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all; `note`
    says below it what was measured where. Errors: UsageError for another ending or for nothing to
    draw; Failure where the disk refuses."""
    kind = figure_format(path)
    if not panels:
        raise UsageError("nothing was measured, so there is nothing to draw")
    with mpl.rc_context(STYLE):
        figure = compose(panels, note)
    save(figure, path, kind)


def compose(panels: Sequence[Panel], note: str) -> Figure:
    """The figure before it is written: panels two a row, one legend for all."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width, height = 3.3 * columns, 2.5 * rows
    lines = wrap(note, int((width - 0.16) * 72 / (0.55 * LETTERS)))
    below = (len(lines) * LETTERS * 1.35 + 8) / 72
    figure = Figure(figsize=(width, height + below), dpi=DPI)
    FigureCanvasAgg(figure)
    names = list(dict.fromkeys(series.name for panel in panels for series in panel.series))
    colours = dict(zip(names, sns.color_palette("colorblind", len(names)), strict=True))
    markers = {name: MARKERS[number % len(MARKERS)] for number, name in enumerate(names)}
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        box = (
            (3.3 * column + 0.56) / width,
            (height + below - 2.5 * row - 2.2) / (height + below),
            2.6 / width,
            1.9 / (height + below),
        )
        _panel(figure.add_axes(box), panel, colours, markers)
    put_note(figure, lines, LETTERS)
    return figure


def _panel(
    ax: Axes,
    panel: Panel,
    colours: dict[str, tuple[float, float, float]],
    markers: dict[str, str],
) -> None:
    for series in panel.series:
        frame = pd.DataFrame({"x": series.x, "y": series.y})
        colour, fit = colours[series.name], series.fit
        power = "" if fit is None else f"  (exponent {fit.text()})"
        sns.scatterplot(
            frame,
            x="x",
            y="y",
            ax=ax,
            color=colour,
            marker=markers[series.name],
            s=16,
            linewidth=0.3,
            label=f"{series.name}{power}",
            zorder=3,
        )
        ax.errorbar(series.x, series.y, series.spread, fmt="none", ecolor=colour, elinewidth=0.7)
        if fit is not None:
            ends = np.array([min(series.x), max(series.x)])
            curve = fit.factor * ends**fit.exponent
            ax.plot(ends, curve, color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
    ax.set(xscale="log", yscale="log")
    _ticks(ax, panel)
    ax.set_title(panel.title, fontsize=LETTERS + 1, fontweight="bold", loc="left", pad=4)
    ax.set_xlabel(panel.x_label, fontsize=LETTERS, labelpad=2)
    ax.set_ylabel(panel.y_label, fontsize=LETTERS, labelpad=2)
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.grid(visible=True, which="major", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)
    ax.legend(fontsize=LETTERS - 0.5, frameon=False, handletextpad=0.2, borderaxespad=0.2)


def _ticks(ax: Axes, panel: Panel) -> None:
    """Ticks at the sizes that were measured; on the other axis at 1, 2 and 5 of each decade, and
    room above the points for the legend."""
    sizes = sorted({x for series in panel.series for x in series.x})
    ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    points = [
        (y, error)
        for series in panel.series
        for y, error in zip(series.y, series.spread, strict=True)
    ]
    low = min(max(y - error, y / 2) for y, error in points)
    high = max(y + error for y, error in points)
    decades = np.log10(high / low)
    # A flat series is drawn flat: at least a factor of two from bottom to top.
    room = max(decades, np.log10(2))
    middle = np.log10(low * high) / 2
    top = 0.62 + 0.16 * len(panel.series)
    ax.set_ylim(10 ** (middle - 0.58 * room), 10 ** (middle + top * room))
    subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if room < 1 else (1.0, 2.0, 5.0) if room < 2.5 else (1.0,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def _plain(value: float) -> str:
    """A tick in words that need no exponent.

    >>> _plain(20_000), _plain(0.05), _plain(2_000_000)
    ('20\\xa0k', '0.05', '2\\xa0M')
    """
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{NBSP}{prefix}"
    return f"{value:g}"
