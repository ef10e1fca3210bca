"""Curves over training: loss, exact match in and out of distribution, and what a state does.

Legend: S seeds, P points (steps), N layers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tape_arith.arith.figures import style
from tape_arith.arith.figures.captions import NBSP, describe_seeds, preset_words

_BAND = 0.18
_LAYERS = "flare"
_MEASURES = {"norm": "norm of e", "moved": "change of e"}
"""What TAPE measures of its state; other measures go by their own names."""
_UNITS = {"norm": "Frobenius norm a frequency", "moved": "relative to its start"}
_WIDTH, _ROW = 7.2, 1.95  # inches


@dataclass(frozen=True)
class Series:
    """One quantity over the steps that every seed has: P steps, and S rows of P values."""

    steps: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]

    def __bool__(self) -> bool:
        return bool(self.steps)


@dataclass(frozen=True)
class Learner:
    """The curves of one encoding; empty where its runs have no such lines.

    `loss` in nats a scored token; exact match 0..1: `held_out` of held-out problems of the trained
    lengths, the others on the small grid (`by_length`: by digits of the longer operand); `state`:
    of each measure a series a layer.
    """

    encoding: str
    seeds: tuple[int, ...]
    loss: Series
    held_out: Series
    in_distribution: Series
    out_of_distribution: Series
    by_length: Mapping[int, Series] = field(default_factory=dict)
    state: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """The encodings compared, and what their runs have in common: preset, the settings that are
    not the preset's, task, digits."""

    learners: tuple[Learner, ...]
    preset: str
    settings: Mapping[str, int | float | str]
    task: str
    trained_digits: int
    tested_digits: int


def to_json(study: Study) -> str:
    """All series: keys are stable, `schema` counts their changes."""
    return json.dumps({"schema": 1, **asdict(study)}, indent=1, allow_nan=False) + "\n"


def draw(study: Study, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all.

    Raises UsageError for another ending, Failure if the disk refuses.
    """
    kind = style.figure_format(path)
    style.save(compose(study), path, kind)


def compose(study: Study) -> Figure:
    """Return the figure before it is written.

    Loss and exact match of all, then a row for the state of each encoding that has one.
    """
    contextual = [learner for learner in study.learners if learner.state]
    looks = list(style.line_styles(learner.encoding for learner in study.learners).values())
    handles = [
        Line2D([], [], label=learner.encoding, **look)
        for learner, look in zip(study.learners, looks, strict=True)
    ]
    last = max((step for learner in study.learners for step in learner.loss.steps), default=1)
    with mpl.rc_context(style.STYLE):
        height = _ROW * (1 + len(contextual)) + 0.15 * len(contextual)
        figure = style.page(_WIDTH, height, footnote(study), handles)
        rows = figure.subplots(1 + len(contextual), 3, squeeze=False)
        loss, inside, outside = rows[0]
        for learner, look in zip(study.learners, looks, strict=True):
            _line(loss, learner.loss, look)
            _line(inside, learner.held_out, look)
            _line(outside, learner.out_of_distribution, look)
        _finish(loss, "training loss", "nats a scored token", last)
        _logarithmic(loss)
        end = _scale_end(study)
        label = f"exact match (to {100 * end:g}{NBSP}%)" if end < 1 else "exact match"
        _finish(inside, "in distribution", "exact match", last, 1.0)
        _finish(outside, "out of distribution", label, last, end)
        for axes, learner in zip(rows[1:], contextual, strict=True):
            _draw_state(axes, learner, last)
    return figure


def _draw_state(axes: Sequence[Axes], learner: Learner, last: int) -> None:
    """A row of panels: two measures with a line a layer, and which colour is which layer."""
    name, size = style.fit(learner.encoding, 72 * _WIDTH / 3.6, style.LETTERS + 0.5, "bold")
    for ax, (measure, layers) in zip(axes[:2], learner.state.items(), strict=False):
        for series, colour in zip(layers, sns.color_palette(_LAYERS, len(layers)), strict=True):
            _line(ax, series, {"color": colour})
        title = f"{name}\n{_MEASURES.get(measure, measure)}"
        _finish(ax, title, _UNITS.get(measure, ""), last)
        ax.set_title(title, fontsize=size, fontweight="bold", loc="left", pad=4)
    for ax in axes[min(len(learner.state), 2) :]:
        ax.set_axis_off()
    count = len(next(iter(learner.state.values())))
    colours = sns.color_palette(_LAYERS, count)
    shown = sorted({round(place) for place in np.linspace(0, count - 1, min(count, 8))})
    axes[-1].legend(
        handles=[Line2D([], [], color=colours[i], label=f"entering layer {i + 1}") for i in shown],
        loc="upper left",
        frameon=False,
        fontsize=style.LETTERS,
        handlelength=1.6,
        borderaxespad=0.0,
    )


def _line(ax: Axes, series: Series, look: Mapping[str, Any]) -> None:
    """The mean over seeds, and a band from the lowest to the highest of several."""
    if not series:
        return
    values = np.array(series.values)
    marker = "o" if len(series.steps) == 1 else None  # one point is no line
    pen: dict[str, Any] = {"linewidth": 0.9, "marker": marker, "markersize": 2.5, "zorder": 3}
    ax.plot(series.steps, values.mean(0), **look, **pen)
    if len(values) > 1:
        low, high = values.min(0), values.max(0)
        ax.fill_between(series.steps, low, high, color=look["color"], alpha=_BAND, linewidth=0)


def _finish(ax: Axes, title: str, label: str, last: int, end: float | None = None) -> None:
    """Labels and scales; `end` is that of a scale of shares."""
    if not ax.lines:
        text: dict[str, Any] = {"ha": "center", "fontsize": style.LETTERS}
        ax.text(0.5, 0.5, "not taken", transform=ax.transAxes, **text)
    ax.set(xlim=(0, 1.02 * last), xlabel="step", ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    if end is not None:
        ax.set_ylim(-0.03 * end, 1.03 * end)
        ax.yaxis.set_major_formatter(FuncFormatter(style.percent_tick))
    style.finish(ax, title, grid="both")


def _logarithmic(ax: Axes) -> None:
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _scale_end(study: Study) -> float:
    """Where the scale out of distribution ends: all seeds are on it."""
    values = [v for one in study.learners for row in one.out_of_distribution.values for v in row]
    return style.scale_end(max(values, default=1.0))


def footnote(study: Study) -> str:
    """Describe the runs, the quantities and the bands of the figure."""
    learners = study.learners
    counts = {len(learner.seeds) for learner in learners}
    if counts == {1}:
        band = "One run each: no band says how much seeds differ."
    else:
        band = "Lines: means over seeds; bands: from the lowest to the highest seed, no interval."
        band += " A line without a band is one run." if 1 in counts else ""
    without = [learner.encoding for learner in learners if not learner.out_of_distribution]
    grid = (
        f"Out of distribution: a small grid to {study.tested_digits} digits with problems of its "
        "own, a few for each pair of lengths, all of the same weight"
    )
    grid += f" (not scored: {', '.join(without)})." if without else "."
    end = _scale_end(study)
    if end < 1:
        grid += f" Its scale ends at {100 * end:g}{NBSP}%, that in distribution at 100{NBSP}%."
    if any(learner.state for learner in learners):
        grid += (
            " e: means over tokens, heads and frequencies of held-out problems; a rotation's norm "
            "is 1.41."
        )
    reached = {learner.encoding: max(learner.loss.steps, default=0) for learner in learners}
    behind = [f"{name} to {n:,}" for name, n in reached.items() if n < max(reached.values())]
    so_far = f" So far: {', '.join(behind)} steps." if behind else ""
    seeds = describe_seeds({learner.encoding: learner.seeds for learner in learners})
    return (
        f"Task {study.task}, trained to {study.trained_digits} digits "
        f"(preset {preset_words(study.preset, study.settings)}), {seeds}. {band} "
        "Loss: of the training problems since the point before. In distribution: held-out problems "
        f"of the trained lengths. {grid}{so_far} Nothing is selected by these curves."
    )
