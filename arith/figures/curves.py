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
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tape_arith.arith.figures.captions import NBSP, preset_words
from tape_arith.arith.figures.figure_file import DPI, STYLE, figure_format, save
from tape_arith.arith.figures.foot import put_legend, put_note
from tape_arith.arith.figures.looks import bound, looks
from tape_arith.arith.figures.panel import shrink
from tape_arith.arith.figures.style import LETTERS, lines

BAND = 0.18
LAYERS = "flare"
MEASURES = 2
"""Panels of an encoding's state: of its first measures."""
STATE = {"norm": "norm of e", "moved": "change of e"}
"""What TAPE measures; others' measures go by their own names."""
UNITS = {"norm": "Frobenius norm a frequency", "moved": "relative to its start"}


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


# ---- the figure --------------------------------------------------------------------------------

# Inches.
SIDE, HEIGHT, LEFT, GAP, ROW_GAP, TOP, AXIS = 1.82, 1.4, 0.56, 0.48, 0.8, 0.3, 0.36


def draw(study: Study, path: Path) -> None:
    """Write the figure to `path`, as PNG, SVG or PDF by its ending, whole or not at all. Errors:
    UsageError for another ending; Failure where the disk refuses."""
    kind = figure_format(path)
    with mpl.rc_context(STYLE):
        save(compose(study), path, kind)


def compose(study: Study) -> Figure:
    """The figure before it is written: loss and exact match of all, then a row for the state of
    each encoding that has one."""
    contextual = [learner for learner in study.learners if learner.state]
    rows = 1 + len(contextual)
    width = LEFT + 3 * SIDE + 2 * GAP + 0.12
    note = lines(footnote(study), (width - 0.16) * 72, LETTERS)
    handles = _handles(study)
    legend = 0.17 * -(-len(handles) // 4) + 0.1
    below = len(note) * LETTERS * 1.35 / 72 + legend + AXIS
    height = below + rows * HEIGHT + (rows - 1) * ROW_GAP + TOP
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)

    def panel(row: int, column: int, title: str) -> Axes:
        left = LEFT + column * (SIDE + GAP)
        bottom = height - TOP - row * (HEIGHT + ROW_GAP) - HEIGHT
        box = (left / width, bottom / height, SIDE / width, HEIGHT / height)
        ax = figure.add_axes(box)
        label = ax.set_title(title, fontsize=LETTERS + 0.5, fontweight="bold", loc="left", pad=4)
        shrink(label, ax, 1.2)
        return ax

    last = max((step for learner in study.learners for step in learner.loss.steps), default=1)
    loss, inside, outside = (panel(0, i, title) for i, title in enumerate(TITLES))
    for learner, look in zip(study.learners, _looks(study), strict=True):
        _line(loss, learner.loss, look)
        _line(inside, learner.held_out, look)
        _line(outside, learner.out_of_distribution, look)
    _finish(loss, "nats a scored token", last, logarithmic=True)
    top = _bound(study)
    for ax, end in ((inside, 1.0), (outside, top)):
        ax.set_ylim(-0.03 * end, 1.03 * end)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}{NBSP}%"))
        _finish(ax, "exact match", last)
    if top < 1:
        outside.set_ylabel(f"exact match (to {100 * top:g}{NBSP}%)", fontsize=LETTERS, labelpad=2)
    for row, learner in enumerate(contextual, start=1):
        for column, (measure, of_layers) in enumerate(list(learner.state.items())[:MEASURES]):
            ax = panel(row, column, f"{learner.encoding}\n{STATE.get(measure, measure)}")
            for series, colour in zip(
                of_layers, sns.color_palette(LAYERS, len(of_layers)), strict=True
            ):
                _line(ax, series, {"color": colour})
            _finish(ax, UNITS.get(measure, ""), last)
        _layers(panel(row, 2, ""), len(next(iter(learner.state.values()))))
    put_legend(figure, handles, below - AXIS - legend + 0.06, 4, LETTERS)
    put_note(figure, note, LETTERS)
    return figure


def _bound(study: Study) -> float:
    """How far the scale out of distribution goes: all seeds are on it."""
    values = [v for one in study.learners for row in one.out_of_distribution.values for v in row]
    return bound(max(values, default=1.0))


TITLES = ("training loss", "in distribution", "out of distribution")


def _line(ax: Axes, series: Series, look: Mapping[str, Any]) -> None:
    """The mean over seeds, and from the lowest to the highest of them where there are several."""
    if not series:
        return
    values = np.array(series.values)
    marker = "o" if len(series.steps) == 1 else None  # one point is no line
    ax.plot(
        series.steps,
        values.mean(0),
        **look,
        linewidth=0.9,
        marker=marker,
        markersize=2.5,
        zorder=3,
    )
    if len(values) > 1:
        low, high = values.min(0), values.max(0)
        ax.fill_between(series.steps, low, high, color=look["color"], alpha=BAND, linewidth=0)


def _finish(ax: Axes, label: str, last: int, *, logarithmic: bool = False) -> None:
    if not ax.lines:
        ax.text(0.5, 0.5, "not taken", transform=ax.transAxes, ha="center", fontsize=LETTERS)
    ax.set_xlim(0, 1.02 * last)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    if logarithmic:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("step", fontsize=LETTERS, labelpad=2)
    ax.set_ylabel(label, fontsize=LETTERS, labelpad=2)
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.grid(visible=True, which="major", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


def _layers(ax: Axes, count: int) -> None:
    """Which colour is which layer, in place of a panel."""
    ax.set_axis_off()
    colours = sns.color_palette(LAYERS, count)
    shown = sorted({round(place) for place in np.linspace(0, count - 1, min(count, 8))})
    ax.legend(
        handles=[Line2D([], [], color=colours[i], label=f"entering layer {i + 1}") for i in shown],
        loc="upper left",
        frameon=False,
        fontsize=LETTERS,
        handlelength=1.6,
        borderaxespad=0.0,
    )


def _handles(study: Study) -> list[Line2D]:
    return [
        Line2D([], [], label=learner.encoding, **look)
        for learner, look in zip(study.learners, _looks(study), strict=True)
    ]


def _looks(study: Study) -> list[dict[str, Any]]:
    return list(looks(learner.encoding for learner in study.learners).values())


def footnote(study: Study) -> str:
    """What every reader of the figure needs: the runs, the quantities, the bands."""
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
    top = _bound(study)
    if top < 1:
        grid += f" Its scale ends at {100 * top:g}{NBSP}%, that in distribution at 100{NBSP}%."
    reached = {learner.encoding: max(learner.loss.steps, default=0) for learner in learners}
    behind = [f"{name} to {n:,}" for name, n in reached.items() if n < max(reached.values())]
    so_far = f" So far: {', '.join(behind)} steps." if behind else ""
    state = (
        " e: means over tokens, heads and frequencies of held-out problems; a rotation's norm is "
        "1.41."
        if any(learner.state for learner in learners)
        else ""
    )
    return (
        f"Task {study.task}, trained to {study.trained_digits} digits "
        f"(preset {preset_words(study.preset, study.settings)}), {_seeds(learners)}. {band} "
        "Loss: of the training problems since the point before. In distribution: held-out problems "
        f"of the trained lengths. {grid}{state}{so_far} Nothing is selected by these curves."
    )


def _seeds(learners: Sequence[Learner]) -> str:
    """ "seeds 0, 1 (tape: 0)" """
    of = [learner.seeds for learner in learners]
    common = max(of, key=lambda seeds: (of.count(seeds), len(seeds)))
    other = [
        f"{learner.encoding}: {', '.join(map(str, learner.seeds))}"
        for learner in learners
        if learner.seeds != common
    ]
    word = "seed" if len(common) == 1 else "seeds"
    told = f" ({'; '.join(other)})" if other else ""
    return f"{word} {', '.join(map(str, common))}{told}"
