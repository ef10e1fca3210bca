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
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from tape_arith.arith.figures import style
from tape_arith.arith.figures.captions import NBSP, describe_seeds, preset_words

_LAYERS = "flare"
_MEASURES = {
    "norm": ("norm of e", "Frobenius norm a frequency"),
    "moved": ("change of e", "relative to its start"),
}
"""Title and unit of what TAPE measures of its state; other measures go by their own names."""
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
    """The encodings compared, and the settings that their runs have in common."""

    learners: tuple[Learner, ...]
    preset: str
    settings: Mapping[str, int | float | str]
    """Settings that are not the preset's."""
    task: str
    trained_digits: int
    tested_digits: int

    @property
    def scale_end(self) -> float:
        """Return the end of the scale out of distribution, which shows all seeds."""
        rows = [row for one in self.learners for row in one.out_of_distribution.values]
        return style.scale_end(max((value for row in rows for value in row), default=1.0))


def to_json(study: Study) -> str:
    """Format all series: keys are stable, `schema` counts their changes."""
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
    looks = style.line_styles(learner.encoding for learner in study.learners)
    handles = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    last = max((step for learner in study.learners for step in learner.loss.steps), default=1)
    end = study.scale_end
    outside = f"exact match (to {100 * end:g}{NBSP}%)" if end < 1 else "exact match"
    with mpl.rc_context(style.STYLE):
        height = _ROW * (1 + len(contextual)) + 0.15 * len(contextual)
        figure = style.page(_WIDTH, height, footnote(study), handles)
        rows = figure.subplots(1 + len(contextual), 3, squeeze=False)
        for ax, name, title, label, top in zip(
            rows[0],
            ("loss", "held_out", "out_of_distribution"),
            ("training loss", "in distribution", "out of distribution"),
            ("nats a scored token", "exact match", outside),
            (None, 1.0, end),
            strict=True,
        ):
            for learner in study.learners:
                _draw_line(ax, getattr(learner, name), looks[learner.encoding])
            _finish(ax, title, label, last, top)
        _set_logarithmic(rows[0][0])
        for axes, learner in zip(rows[1:], contextual, strict=True):
            _draw_state(axes, learner, last)
    return figure


def _draw_state(axes: Sequence[Axes], learner: Learner, last: int) -> None:
    """Draw a row of panels: two measures with a line a layer, and which colour is which layer."""
    name, size = style.fit(learner.encoding, 72 * _WIDTH / 3.6, style.LETTERS + 0.5, "bold")
    colours = sns.color_palette(_LAYERS, len(next(iter(learner.state.values()))))
    for ax in axes[min(len(learner.state), 2) :]:
        ax.set_axis_off()
    for ax, (measure, layers) in zip(axes[:2], learner.state.items(), strict=False):
        for series, colour in zip(layers, colours, strict=True):
            _draw_line(ax, series, {"color": colour})
        title, unit = _MEASURES.get(measure, (measure, ""))
        _finish(ax, "", unit, last)
        ax.set_title(f"{name}\n{title}", fontsize=size, fontweight="bold", loc="left", pad=4)
    shown = np.unique(np.linspace(0, len(colours) - 1, min(len(colours), 8)).round().astype(int))
    axes[-1].legend(
        handles=[Line2D([], [], color=colours[i], label=f"entering layer {i + 1}") for i in shown],
        loc="upper left",
        frameon=False,
        fontsize=style.LETTERS,
        handlelength=1.6,
        borderaxespad=0.0,
    )


def _draw_line(ax: Axes, series: Series, look: Mapping[str, Any]) -> None:
    """Draw the mean over seeds, and a band from the lowest to the highest of several."""
    if not series:
        return
    values = np.array(series.values)
    marker = "o" if len(series.steps) == 1 else None  # one point is no line
    pen: dict[str, Any] = {"linewidth": 0.9, "marker": marker, "markersize": 2.5, "zorder": 3}
    ax.plot(series.steps, values.mean(0), **look, **pen)
    if len(values) > 1:
        band: dict[str, Any] = {"color": look["color"], "alpha": 0.18, "linewidth": 0}
        ax.fill_between(series.steps, values.min(0), values.max(0), **band)


def _finish(ax: Axes, title: str, label: str, last: int, end: float | None = None) -> None:
    """Set labels and scales; `end` is that of a scale of shares."""
    if not ax.lines:
        text: dict[str, Any] = {"ha": "center", "fontsize": style.LETTERS}
        ax.text(0.5, 0.5, "not taken", transform=ax.transAxes, **text)
    ax.set(xlim=(0, 1.02 * last), xlabel="step", ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=True))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    if end is not None:
        ax.set_ylim(-0.03 * end, 1.03 * end)
        ax.yaxis.set_major_formatter(style.percent_tick)
    style.finish(ax, title, grid="both")


def _set_logarithmic(ax: Axes) -> None:
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def footnote(study: Study) -> str:
    """Describe the runs, the quantities and the bands of the figure."""
    learners, end = study.learners, study.scale_end
    seeds = {learner.encoding: learner.seeds for learner in learners}
    counts = set(map(len, seeds.values()))
    band = "One run each: no band says how much seeds differ."
    if counts != {1}:
        band = "Lines: means over seeds; bands: from the lowest to the highest seed, no interval."
        band += " A line without a band is one run." * (1 in counts)
    without = [learner.encoding for learner in learners if not learner.out_of_distribution]
    grid = (
        f"Out of distribution: a small grid to {study.tested_digits} digits with problems of its "
        "own, a few for each pair of lengths, all of the same weight"
    )
    grid += f" (not scored: {', '.join(without)})." if without else "."
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
    return (
        f"Task {study.task}, trained to {study.trained_digits} digits "
        f"(preset {preset_words(study.preset, study.settings)}), {describe_seeds(seeds)}. {band} "
        "Loss: of the training problems since the point before. In distribution: held-out problems "
        f"of the trained lengths. {grid}{so_far} Nothing is selected by these curves."
    )
