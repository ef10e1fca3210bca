"""Stability under positional shifts: numbers, tables and the figure.

Never imports torch: `stability.py` measures.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
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
from tape_arith.arith.figures.tables import pipe_table
from tape_arith.arith.scoring.statistics import student_t

Precision = Literal["float32", "float64"]
ROUNDING: dict[Precision, float] = {"float32": 3e-5, "float64": 1e-12}
"""Changes up to here may be rounding alone: some hundred units of it, in float64 some thousand,
because the angle of an index near 1000 is itself rounded by 1e-13 there."""
CHANGES = {
    "start 3": "indices start at 3",
    "start 1000": "indices start at 1000",
    "BOS": "three [BOS] in front",
}
"""The two of the paper, and a shift beyond every trained index."""
ATTENTION, RENORMALISED, PRODUCTS = "attention", "attention, renormalised", "inner products"
MEASURES = {
    ATTENTION: "attention weights",
    RENORMALISED: "attention weights, renormalised",
    PRODUCTS: "inner products of positions",
}
"""Quantities compared before and after a change. Renormalised: rows sum to 1 again without the
columns of the leading tokens (a row whose whole weight lay there stays zero)."""
NO_STATE = "no positional state"
UNTRAINED = "[BOS] not trained"


@dataclass(frozen=True)
class Series:
    """The relative change of one run in each layer, for one of CHANGES and one of MEASURES.

    `values` is None if it cannot be measured, for the reason `why`. Training put up to
    `leading_bos` [BOS] in front of its problems.
    """

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
        """The encoding, with the [BOS] of its training."""
        return self.encoding + (f", 0 to {self.leading_bos} [BOS]" if self.leading_bos else "")


@dataclass(frozen=True)
class StabilityStudy:
    """All series. `evaluation` describes the problems: task, version, seed, max_digits, problems
    (their number), sha256."""

    series: tuple[Series, ...]
    preset: str
    evaluation: dict[str, Any]

    @property
    def several_seeds(self) -> bool:
        """Whether any encoding has more than one run."""
        runs = {(series.label, series.run) for series in self.series}
        return len({label for label, _ in runs}) < len(runs)

    @property
    def untrained_bos(self) -> bool:
        """Whether any run was trained without [BOS]."""
        return any(not series.leading_bos for series in self.series)

    @property
    def source(self) -> str:
        """A sentence that describes the problems."""
        facts = self.evaluation
        return (
            f"{facts['problems']} problems, the first of the evaluation set (task {facts['task']}, "
            f"to {facts['max_digits']} digits, seed {facts['seed']}; SHA-256 of these "
            f"{facts['sha256'][:8]}); preset {self.preset}."
        )


def to_markdown(study: StabilityStudy) -> str:
    """Format a row for each encoding, precision, change and measure, a column a layer."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for series in study.series:
        key = (series.label, series.precision, CHANGES[series.change], MEASURES[series.measure])
        groups.setdefault(key, []).append(series)
    layers = max((len(series.values) for series in study.series if series.values), default=0)
    body = [
        [
            runs[0].encoding,
            ", ".join(str(run.seed) for run in runs),
            f"0 to {runs[0].leading_bos} [BOS]" if runs[0].leading_bos else "no [BOS]",
            *facts,
            *(_cell(runs, layer) for layer in range(layers)),
        ]
        for (_, *facts), runs in groups.items()
    ]
    head = ["encoding", "seeds", "trained with", "numbers", "change", "of"]
    head += [f"layer {layer + 1}" for layer in range(layers)]
    table = pipe_table(head, "l" * 6 + "r" * layers, body)
    return table + "".join(f"\n{line}\n" for line in [_legend(study), *_reasons(study)])


def _cell(runs: Sequence[Series], layer: int) -> str:
    values = [run.values[layer] for run in runs if run.values is not None]
    if not values:
        return "none"
    interval = student_t(values)
    text = _number(values[0])
    if interval is not None:
        text = f"{_number(interval.mean)} ± {_number(interval.half_width)}"
    small = all(0 < value <= ROUNDING[runs[0].precision] for value in values)
    return f"{text} r" if small else text


def _number(value: float) -> str:
    """Format three digits, or two of a small number.

    >>> _number(0.0), _number(2.13e-07), _number(0.87124)
    ('0', '2.1e-07', '0.871')
    """
    return f"{value:.3g}" if value == 0 or value >= 1e-3 else f"{value:.1e}"


def _legend(study: StabilityStudy) -> str:
    spread = " ± is the 95 % interval over seeds (Student t)." if study.several_seeds else ""
    precisions = sorted({series.precision for series in study.series})
    levels = ", ".join(f"{ROUNDING[precision]:g} in {precision}" for precision in precisions)
    untrained = f" {UNTRAINED}: such runs get a token that is untrained." * study.untrained_bos
    return (
        "Mean absolute change over mean absolute value, over keys up to the query, heads and "
        f"problems.{spread} r: not told from rounding (at most {levels}). Behind [BOS] the "
        "original tokens are compared, raw and with rows that sum to 1 "
        f"again.{untrained} {study.source}"
    )


def _reasons(study: StabilityStudy) -> list[str]:
    """Format a line for each reason why numbers are missing."""
    missing: dict[str, dict[str, None]] = {}
    for series in study.series:
        if series.values is None and series.measure != RENORMALISED:
            change = "" if series.why == NO_STATE else f", {CHANGES[series.change]}"
            name = f"{series.label}{change}, {MEASURES[series.measure]}"
            missing.setdefault(str(series.why), {})[name] = None
    return [f"none ({reason}): {'; '.join(names)}." for reason, names in missing.items()]


def to_json(study: StabilityStudy) -> str:
    """Format all series, and which of their values may be rounding alone."""
    precisions = dict.fromkeys(series.precision for series in study.series)
    content = {
        "schema": 1,
        "kind": "stability",
        "preset": study.preset,
        "evaluation": study.evaluation,
        "rounding_level": {precision: ROUNDING[precision] for precision in precisions},
        "series": [
            vars(series)
            | {
                "at_rounding_level": None
                if series.values is None
                else [value <= ROUNDING[series.precision] for value in series.values]
            }
            for series in study.series
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def to_csv(study: StabilityStudy) -> str:
    """Format a row a number; a series without numbers has one row with the reason."""
    rows = []
    for series in study.series:
        facts = {name: value for name, value in vars(series).items() if name != "values"}
        limit = ROUNDING[series.precision]
        if series.values is None:
            rows.append({**facts, "layer": "", "value": "", "at_rounding_level": ""})
        for layer, value in enumerate(series.values or (), start=1):
            numbers = {"layer": layer, "value": f"{value:.9e}", "at_rounding_level": value <= limit}
            rows.append(facts | numbers)
    return pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")


# ---- figure ------------------------------------------------------------------------------------

_BAND = "#e9e9e9"
_RAW, _ZERO = (0, (1, 1.5)), "x"
_LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.2, "markeredgewidth": 0.7}
_THIN: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.5, "markersize": 0, "zorder": 2}


def draw(study: StabilityStudy, path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of `path`.

    Raises UsageError for another ending, Failure if the disk refuses.
    """
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(study), path, kind)


def compose(study: StabilityStudy) -> Figure:
    """Draw a row of panels for attention weights, one for inner products if any encoding has them,
    and a column a change. Of two precisions draws the finer."""
    precision: Precision = max(one.precision for one in study.series)
    series = [one for one in study.series if one.precision == precision and one.values]
    rows = [[ATTENTION, RENORMALISED]]
    if any(one.measure == PRODUCTS for one in series):
        rows.append([PRODUCTS])
    labels = dict.fromkeys(one.label for one in study.series)
    styles = {label: {**style, **_LINE} for label, style in series_styles(labels).items()}
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
    """Set the scales and draw the band of rounding; return the lowest value drawn to scale."""
    large = [value for one in alike for value in one.values or () if value > small]
    high = 3 * max([*large, 1.0])
    low, top = small * 1e-4, small
    # Behind [BOS] all changes beyond rounding lie within a few decades: the band stands below them.
    if behind_bos:
        top = min([*large, 0.1]) / 2
        low = top * (top / high) ** 0.2
    ax.axhspan(low, top, color=_BAND, linewidth=0, zorder=0)
    ax.set(yscale="log", ylim=(low, high))
    ticks = LogLocator(numticks=7).tick_values(low, high)
    ax.set_yticks([tick for tick in ticks if (top if behind_bos else low) <= tick <= high])
    ax.yaxis.set_minor_locator(NullLocator())
    layers = max((len(one.values) for one in alike if one.values), default=1)
    ax.set_xlim(1 - 0.06 * layers, 1.06 * layers)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return top if behind_bos else low


def _lines(drawn: Sequence[Series]) -> Iterator[tuple[Series, bool]]:
    """Yield each series to draw, and whether its line is thin.

    Of several runs these are their mean and, thin, each run; of raw weights behind [BOS] the mean
    alone, because thin lines would hide the renormalised ones.
    """
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in drawn:
        groups.setdefault((one.label, one.measure), []).append(one)
    for runs in groups.values():
        if len(runs) == 1 or len({len(one.values or ()) for one in runs}) > 1:
            yield from ((one, False) for one in runs)
            continue
        if not _is_raw(runs[0]):
            yield from ((one, True) for one in runs)
        mean = np.mean([one.values or () for one in runs], axis=0)
        yield replace(runs[0], values=tuple(mean.tolist())), False


def _is_raw(one: Series) -> bool:
    return one.change == "BOS" and one.measure == ATTENTION


def _draw_line(
    ax: Axes, one: Series, style: dict[str, Any], thin: bool, lowest: float, small: float
) -> None:
    """Draw a line over layers, with a cross at the bottom for an exact 0; behind [BOS] values at
    the level of rounding stand in the band, unconnected."""
    hollow = one.change == "BOS" and not one.leading_bos
    look = {**style, "markerfacecolor": "white" if hollow else style["color"], "zorder": 3}
    look |= {"clip_on": False, **(_THIN if thin else {})}
    values = np.array(one.values)
    layers, zero = np.arange(1, len(values) + 1), values == 0
    bottom = ax.get_ylim()[0]
    if one.change == "BOS":
        within = (values <= small) & ~zero
        middle = np.full(within.sum(), (bottom * lowest) ** 0.5)
        ax.plot(layers[within], middle, **{**look, "linestyle": ""})
        values = np.where(within, np.nan, values)
    values = np.where(zero, np.nan, np.maximum(values, bottom))
    ax.plot(layers, values, linestyle=_RAW if _is_raw(one) else "-", **look)
    crosses = {**look, "marker": _ZERO, "linestyle": ""}
    ax.plot(layers[zero], np.full(zero.sum(), bottom), **crosses)


def _handles(
    study: StabilityStudy, series: Sequence[Series], styles: dict[str, dict[str, Any]]
) -> list[Artist]:
    """Return legend entries of the encodings and of the signs that the figure uses."""
    grey: dict[str, Any] = {**_LINE, "color": "#555555"}
    handles: list[Artist] = [Line2D([], [], label=label, **look) for label, look in styles.items()]
    handles.append(Patch(facecolor=_BAND, label="not told from rounding"))
    handles.append(Line2D([], [], linestyle=_RAW, label="raw, not renormalised", **grey))
    if any(0.0 in (one.values or ()) for one in series):
        handles.append(Line2D([], [], linestyle="", marker=_ZERO, label="exactly 0", **grey))
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
