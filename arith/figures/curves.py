"""Draw curves over training: loss, exact match, and the state of an encoding."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.captions import NBSP, describe_seeds, preset_words
from tape_arith.arith.compare.curves import Curves, by_seed
from tape_arith.arith.compare.labels import display_names
from tape_arith.arith.compare.lengths import measured
from tape_arith.arith.figures import style
from tape_arith.arith.figures.looks import looks_of
from tape_arith.arith.grids.axes import length_axes

_MEASURES = {
    "state norm": ("norm of e", "Frobenius norm a frequency"),
    "state moved": ("change of e", "relative to its start"),
}
"""Title and unit of each measure of TAPE's state; any other measure is titled by its own name."""
_WIDTH, _ROW, _PANEL = 7.2, 1.95, 1.7
"""Width of the page, height of a row, and least width of a panel, in inches."""


@style.styled()
def compose(
    content: Curves,
    *,
    labels: Mapping[str, str] | None = None,
    width: float | None = None,
    columns: int | None = None,
    caption: bool = True,
) -> Figure:
    """Return the figure: loss and exact match of all encodings, then the state of each.

    An encoding that has a state begins a new row of panels. `labels` are printed in place of usual
    ones. Raises UsageError as `display_names` does.
    """
    labels = display_names(content.seeds, labels, content.recorded)
    width = width or _WIDTH
    columns = min(3, columns or max(1, int(width / _PANEL)))
    rows, curves, end = content.rows, by_seed(content.rows), _scale_end(content.rows)
    states = rows[rows.quantity.str.startswith("state ")]
    quantities = {name: states.quantity[states.encoding == name].unique() for name in content.seeds}
    measures = {name: each for name, each in quantities.items() if len(each)}
    colours = sns.color_palette("flare", int(states.part.max()) if measures else 0)
    looks = {name: look.line for name, look in looks_of(content.seeds).items()}
    handles = [Line2D([], [], label=labels[name], **look) for name, look in looks.items()]
    guess = captions.chance(content.task)
    if guess:
        handles.append(Line2D([], [], label="a guess", **style.GUESS))
    last = max(rows.step.max() if len(rows) else 0, 1)
    outside = f"exact match (to {100 * end:g}{NBSP}%)" if end < 1 else "exact match"
    layers = _layer_handles(colours)
    counts = list(map(len, measures.values()))
    # The legend of layers goes next to the panels of a state, if there is room.
    has_room = columns == 3 and max(counts, default=0) < 3
    needed = -(-np.array([3, *counts]) // columns)
    height = min(_ROW, 0.55 + 0.62 * width / columns) * sum(needed) + 0.15 * len(measures)
    note = footnote(content, labels) if caption else ""
    figure = style.page(width, height, note, handles if has_room else handles + layers)
    rows_of_axes = figure.subplots(sum(needed), columns, squeeze=False)
    axes = [block.ravel() for block in np.split(rows_of_axes, np.cumsum(needed)[:-1])]
    for ax in (*axes[0][3:], *chain.from_iterable(axes[1:])):
        ax.set_axis_off()
    quantities_of_all = [
        ("loss", "training loss", "nats per scored token", None),
        ("held_out", "in distribution", "exact match", 1.0),
        ("out_of_distribution", "out of distribution", outside, end),
    ]
    for ax, (quantity, title, label, top) in zip(axes[0], quantities_of_all, strict=False):
        lines = [(curves[name, quantity, 0], look) for name, look in looks.items()]
        _draw_panel(ax, lines, title, label, last, top)
        if guess and top:
            ax.axhline(guess, zorder=1, **style.GUESS)
    _set_logarithmic(axes[0][0])
    for row, name in zip(axes[1:], measures, strict=True):
        for ax, quantity in zip(row, measures[name], strict=False):
            title, unit = _MEASURES.get(quantity, (quantity.removeprefix("state "), ""))
            lines = [
                (curves[name, quantity, layer], {"color": colour})
                for layer, colour in enumerate(colours, start=1)
            ]
            ax.set_axis_on()
            _draw_panel(ax, lines, f"{labels[name]}\n{title}", unit, last)
    if measures and has_room:
        look: dict[str, Any] = {"loc": "upper left", "frameon": False, "borderaxespad": 0.0}
        axes[1][2].legend(handles=layers, fontsize=style.LETTERS, handlelength=1.6, **look)
    return figure


def _layer_handles(colours: Sequence[Any]) -> list[Line2D]:
    """Return the legend handles of the layers, of eight layers if there are more."""
    shown = np.unique(np.linspace(0, len(colours) - 1, min(len(colours), 8)).round().astype(int))
    return [Line2D([], [], color=colours[i], label=f"entering layer {i + 1}") for i in shown]


def _draw_panel(
    ax: Axes,
    lines: Sequence[tuple[pd.DataFrame, Mapping[str, Any]]],
    title: str,
    label: str,
    last: int,
    end: float | None = None,
) -> None:
    """Draw each line as a mean over seeds, with a band from the lowest seed to the highest.

    `last` is the last step; `end` is where a y axis in percent ends.
    """
    for table, look in lines:
        pen: dict[str, Any] = {"linewidth": 1.0, "zorder": 3, **look}
        if len(table) == 1:  # one point makes no line
            pen |= {"marker": "o", "markersize": 2.5, "markevery": None}
        if len(table):
            ax.plot(table.index, table.mean(axis=1), **pen)
        if len(table.columns) > 1:
            band: dict[str, Any] = {"color": look["color"], "alpha": 0.18, "linewidth": 0}
            ax.fill_between(table.index, table.min(axis=1), table.max(axis=1), **band)
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


def footnote(content: Curves, labels: Mapping[str, str] | None = None) -> str:
    """Describe the runs, quantities and bands of the figure; `labels` has the names to print."""
    labels = labels or display_names(content.seeds)
    rows, end = content.rows, _scale_end(content.rows)
    seeds = {labels[name]: numbers for name, numbers in content.seeds.items()}
    trained, tested = f"{content.trained_digits} digits", f"{content.tested_digits} digits"
    cells = "cell of some lengths"
    if axes := content.axes:
        trained = measured(axes, [axis.trained for axis in axes])
        tested = measured(axes, [axis.tested for axis in axes])
        cells = "pair of lengths" if len(length_axes(axes)) > 1 else "length"
    sentences = [
        f"Task {content.task}, trained to {trained} "
        f"(preset {preset_words(content.preset, content.settings)}), {describe_seeds(seeds)}."
    ]
    counts = set(map(len, seeds.values()))
    if counts == {1}:
        sentences.append("One run each: no band says how much seeds differ.")
    else:
        sentences.append("Lines: means over seeds; bands: from the lowest to the highest seed.")
        sentences += ["A line without a band is one run."] * (1 in counts)
    scored = set(rows.encoding[rows.quantity == "out_of_distribution"])
    without = ", ".join(labels[name] for name in content.seeds if name not in scored)
    sentences.append(
        "In distribution: held-out problems; out of distribution: a small grid to "
        f"{tested}, a few problems for each {cells}{f' (not scored: {without})' * bool(without)}"
        f"{f', on a scale to {100 * end:g}{NBSP}%' * (end < 1)}."
    )
    states = {quantity for quantity in rows.quantity if quantity.startswith("state ")}
    if states & _MEASURES.keys():
        sentences.append("e: means over held-out problems; a rotation's norm is 1.41.")
    if states - _MEASURES.keys():
        sentences.append("State: as the encoding measures it on held-out problems.")
    reached = rows.groupby("encoding").step.max()
    late = reached[reached < reached.max()]
    if behind := [f"{labels[name]} to {step:,}" for name, step in late.items()]:
        sentences.append(f"So far: {', '.join(behind)} steps.")
    if guess := captions.guess_words(content.task):
        sentences.append(f"{guess.capitalize()}.")
    if captions.task_has_scratchpad(content.task):
        sentences.append("Exact match is of the whole answer, scratchpad included.")
    return " ".join(sentences)


def _scale_end(rows: pd.DataFrame) -> float:
    """Return where the out-of-distribution axis ends, so that all seeds are on it."""
    values = rows.value[rows.quantity == "out_of_distribution"]
    return style.scale_end(values.max()) if len(values) else 1.0
