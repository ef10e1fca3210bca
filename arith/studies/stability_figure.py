"""Stability under positional shifts over layers: what a study holds, and its figure.

Shapes: N layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.foot import put_legend, put_note
from tape_arith.arith.figures.style import LETTERS, MARKERS, lines

Precision = Literal["float32", "float64"]

ROUNDING: dict[Precision, float] = {"float32": 3e-5, "float64": 1e-12}
"""Changes up to here are not told from rounding: some hundred units of it, and in float64 some
thousand, for there the angle of an index near 1000 is itself rounded by 1e-13."""
CHANGES = {
    "start 3": "indices start at 3",
    "start 1000": "indices start at 1000",
    "BOS": "three [BOS] in front",
}
MEASURES = {
    "attention": "attention weights",
    "attention, renormalised": "attention weights, renormalised",
    "inner products": "inner products of positions",
}
BAND = "#e9e9e9"
UNTRAINED = "[BOS] not trained"
LINE: dict[str, Any] = {
    "linewidth": 0.9,
    "markersize": 3.2,
    "markeredgewidth": 0.7,
    "clip_on": False,
}
RAW, ZERO = (0, (1, 1.5)), "x"


@dataclass(frozen=True)
class Series:
    """One run's relative change, a number a layer, for one change (a key of CHANGES), measure (of
    MEASURES) and type of numbers; None where there is none, for the reason `why`. `leading_bos`:
    training put up to so many [BOS] in front."""

    run: str
    encoding: str
    seed: int
    leading_bos: int
    precision: Precision
    change: str
    measure: str
    values: tuple[float, ...] | None
    why: str | None

    @property
    def label(self) -> str:
        return self.encoding + (f", 0 to {self.leading_bos} [BOS]" if self.leading_bos else "")


@dataclass(frozen=True)
class Study:
    """All series, and over which problems they are taken."""

    series: tuple[Series, ...]
    preset: str
    evaluation: dict[str, Any]
    """task, version, seed, max_digits, problems (how many), sha256 of those"""


def sample_line(study: Study) -> str:
    """Which problems, of which evaluation set."""
    of = study.evaluation
    return (
        f"{of['problems']} problems, the first of the evaluation set (task {of['task']}, to "
        f"{of['max_digits']} digits, seed {of['seed']}; SHA-256 of these {of['sha256'][:8]}); "
        f"preset {study.preset}."
    )


def seed_counts(study: Study) -> dict[str, int]:
    """How many runs there are of each label."""
    runs = {(one.label, one.run) for one in study.series}
    return {label: sum(of == label for of, _ in runs) for label, _ in runs}


# ---- the figure --------------------------------------------------------------------------------

# Inches.
SIDE, HEIGHT, LEFT, GAP, ROW_GAP, TOP, AXIS = 1.9, 1.62, 0.62, 0.36, 0.58, 0.24, 0.36


def draw(study: Study, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all. Errors:
    UsageError for another ending; Failure where the disk refuses."""
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(study), path, kind)


def compose(study: Study) -> Figure:
    """The figure before it is written: a row for the weights, one for the inner products if any
    encoding has them; a column a change. Of two types of numbers the finer one is drawn."""
    precision: Precision = max(one.precision for one in study.series)
    drawn = [one for one in study.series if one.precision == precision and one.values is not None]
    rows = [["attention, renormalised", "attention"]]
    if any(one.measure == "inner products" for one in drawn):
        rows.append(["inner products"])
    width = LEFT + 3 * SIDE + 2 * GAP + 0.1
    note = lines(_note(study, precision), (width - 0.16) * 72, LETTERS)
    labels = list(dict.fromkeys(one.label for one in study.series))
    handles = _handles(study, drawn, labels)
    legend = 0.17 * -(-len(handles) // 3) + 0.1
    below = len(note) * LETTERS * 1.35 / 72 + legend + AXIS
    height = below + len(rows) * HEIGHT + (len(rows) - 1) * ROW_GAP + TOP
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    for row, measures in enumerate(rows):
        for column, change in enumerate(CHANGES):
            box = (
                (LEFT + column * (SIDE + GAP)) / width,
                (height - TOP - row * (HEIGHT + ROW_GAP) - HEIGHT) / height,
                SIDE / width,
                HEIGHT / height,
            )
            ax = figure.add_axes(box)
            of_panel = [
                one for one in drawn if (one.change, one.measure in measures) == (change, True)
            ]
            # Shifts have one scale, so that they compare; the tokens in front one of their own.
            alike = [
                one
                for one in drawn
                if one.measure in measures and (one.change == "BOS") == (change == "BOS")
            ]
            _panel(ax, of_panel, alike, precision, labels)
            ax.set_title(
                CHANGES[change], fontsize=LETTERS + 0.5, fontweight="bold", loc="left", pad=4
            )
            if column == 0:
                ax.set_ylabel(
                    f"relative change,\n{MEASURES[measures[-1]]}", fontsize=LETTERS, labelpad=2
                )
    put_legend(figure, handles, below - AXIS - legend + 0.06, 3, LETTERS)
    put_note(figure, note, LETTERS)
    return figure


def _panel(
    ax: Axes,
    drawn: Sequence[Series],
    alike: Sequence[Series],
    precision: Precision,
    labels: Sequence[str],
) -> None:
    colours = sns.color_palette("colorblind", len(labels))
    small = ROUNDING[precision]
    large = [value for one in alike for value in one.values or () if value > small]
    high = 3 * max([*large, 1.0])
    low, top = small * 1e-4, small
    # Behind [BOS] what is real lies within a few decades: there the band stands below the scale.
    apart = any(one.change == "BOS" for one in alike)
    if apart:
        top = min([*large, 0.1]) / 2
        low = top * (top / high) ** 0.2
    ax.set(yscale="log", ylim=(low, high))
    ax.axhspan(low, top, color=BAND, linewidth=0, zorder=0)
    for one, of_several in _lines(drawn):
        assert one.values is not None
        number = labels.index(one.label)
        layers, values = np.arange(1, len(one.values) + 1), np.array(one.values)
        raw = one.change == "BOS" and one.measure == "attention"
        hollow = one.change == "BOS" and not one.leading_bos
        style: dict[str, Any] = {"color": colours[number], "zorder": 3, **LINE}
        style["markerfacecolor"] = "white" if hollow else colours[number]
        marker, none = MARKERS[number % len(MARKERS)], values == 0
        if of_several:
            style |= {"linewidth": 0.5, "alpha": 0.5, "markersize": 0, "zorder": 2}
        if apart:
            within = (values <= small) & ~none
            ax.plot(layers[within], np.full(within.sum(), (low * top) ** 0.5), marker, **style)
            values = np.where(within, np.nan, values)
        values = np.where(none, np.nan, np.maximum(values, low))
        ax.plot(layers, values, marker=marker, linestyle=RAW if raw else "-", **style)
        ax.plot(layers[none], np.full(none.sum(), low), ZERO, **style)
    if not drawn:
        ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", fontsize=LETTERS)
    most = max((len(one.values) for one in alike if one.values), default=1)
    ax.set_xlim(1 - 0.06 * most, most + 0.06 * most)
    ax.set_xticks(range(1, most + 1, -(-most // 8)))
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.yaxis.set_minor_locator(NullLocator())
    least = top if apart else low
    ax.set_yticks([tick for tick in ax.get_yticks() if least <= tick <= high])
    ax.set_ylim(low, high)
    ax.set_xlabel("layer", fontsize=LETTERS, labelpad=2)
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.grid(visible=True, which="major", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


def _lines(drawn: Sequence[Series]) -> Iterator[tuple[Series, bool]]:
    """What is drawn: of a single run its line; of several their mean, and thin, which is said, each
    of them, but for raw ones, which would hide the others."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in drawn:
        groups.setdefault((one.label, one.measure), []).append(one)
    for (_, measure), runs in groups.items():
        if len({len(one.values or ()) for one in runs}) > 1 or len(runs) == 1:
            yield from ((one, False) for one in runs)
            continue
        if not (runs[0].change == "BOS" and measure == "attention"):
            yield from ((one, True) for one in runs)
        columns = zip(*(one.values or () for one in runs), strict=True)
        yield replace(runs[0], values=tuple(fmean(column) for column in columns)), False


def _handles(study: Study, drawn: Sequence[Series], labels: Sequence[str]) -> list[Any]:
    """A handle for each encoding and each sign that the figure uses."""
    colours = sns.color_palette("colorblind", len(labels))
    handles: list[Any] = [
        Line2D([], [], color=colours[i], marker=MARKERS[i % len(MARKERS)], label=label, **LINE)
        for i, label in enumerate(labels)
    ]
    grey = {**LINE, "color": "#555555"}
    handles.append(Patch(facecolor=BAND, label="not told from rounding"))
    handles.append(Line2D([], [], linestyle=RAW, label="raw, not renormalised", **grey))
    if any(0.0 in (one.values or ()) for one in drawn):
        handles.append(Line2D([], [], linestyle="", marker=ZERO, label="exactly 0", **grey))
    if any(not one.leading_bos for one in study.series):
        handles.append(Line2D([], [], marker="o", markerfacecolor="white", label=UNTRAINED, **grey))
    return handles


def _note(study: Study, precision: Precision) -> str:
    counts = set(seed_counts(study).values())
    seeds = "One run each" if counts == {1} else "Mean over runs (seeds), each run a thin line"
    return (
        f"{seeds}, in {precision}, these runs only. Change: mean |difference| over mean |value|, "
        "over keys up to the query, heads and problems; behind [BOS] of the original tokens, with "
        f"rows that sum to 1 again, and raw. Band: at most {ROUNDING[precision]:g}, not told "
        "from rounding (behind [BOS] it stands below the scale). Inner products are those of the "
        f"state that a layer's attention uses. {sample_line(study)}"
    )
