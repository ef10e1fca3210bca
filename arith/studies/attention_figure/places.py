"""Attention weight on the digits of the same place: all heads, and the best one of each run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from tape_arith.arith.figures.heatmap import COLOURS
from tape_arith.arith.figures.style import LETTERS, MARKERS, lines
from tape_arith.arith.studies.attention_figure.page import (
    EDGE,
    GREY,
    RED,
    box,
    colour_bar,
    colours,
    page,
)
from tape_arith.arith.studies.attention_figure.study import (
    INSIDE,
    OUTSIDE,
    REGIONS,
    Study,
    sample_line,
)

ROOM = 0.05
"""Above 1 and below 0, for markers that stand there."""


def places(study: Study) -> Figure:
    """Above, the best head of each run, in and out of distribution; below, all layers and heads."""
    regions = [region for region in REGIONS if region in study.runs[0].regions]
    layers, heads = study.runs[0].regions[INSIDE].place.shape
    cell = 0.2 if heads <= 8 else 0.12
    wide, high = heads * cell, layers * cell
    left, gap, pair_gap, title, foot, top, dots = 0.5, 0.1, 0.5, 0.36, 0.3, 0.42, 1.6
    pair = len(regions) * (wide + gap) - gap
    pairs = max(1, min(len(study.runs), int(6.2 / (pair + pair_gap))))
    rows = -(-len(study.runs) // pairs)
    width = max(4.6, left + pairs * (pair + pair_gap) + 0.5)
    note = lines(_places_note(study), (width - 2 * EDGE) * 72, LETTERS)
    below = len(note) * LETTERS * 1.35 / 72 + 0.08
    height = below + rows * (title + high + foot) + foot + dots + top
    figure = page(width, height, note)
    ax = figure.add_axes(box((left, height - top - dots, width - left - 0.1, dots), width, height))
    _best_heads(ax, study, regions)
    image = None
    for number, run in enumerate(study.runs):
        row, column = divmod(number, pairs)
        for part, region in enumerate(regions):
            x = left + column * (pair + pair_gap) + part * (wide + gap)
            y = below + (rows - 1 - row) * (title + high + foot) + foot
            ax = figure.add_axes(box((x, y, wide, high), width, height))
            image = ax.imshow(
                run.regions[region].place, cmap=COLOURS, vmin=0, vmax=1, aspect="auto"
            )
            layer, head = run.best
            square = Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=RED)
            square.set(linewidth=1.2, clip_on=False, zorder=3)
            ax.add_patch(square)
            ax.set_title(
                {INSIDE: "in", OUTSIDE: "out"}[region], fontsize=LETTERS, loc="left", pad=2
            )
            steps = [range(0, count, -(-count // 8)) for count in (heads, layers)]
            ax.set_xticks(steps[0], [str(head + 1) for head in steps[0]])
            ax.set_yticks(steps[1], [str(n + 1) for n in steps[1]] if part == 0 else [])
            ax.tick_params(length=0, pad=1.5, labelsize=LETTERS - 0.5)
            if part == 0:
                ax.set_ylabel("layer", fontsize=LETTERS, labelpad=1)
            ax.set_xlabel("head", fontsize=LETTERS, labelpad=1)
            if part == 0:
                figure.text(
                    x / width,
                    (y + high + 0.16) / height,
                    run.title,
                    fontsize=LETTERS + 0.5,
                    fontweight="bold",
                )
    assert image is not None
    bar = (left + pairs * (pair + pair_gap) - pair_gap + 0.12, below + foot, 0.08, high)
    colour_bar(figure, image, bar, "weight")
    return figure


def _best_heads(ax: Axes, study: Study, regions: Sequence[str]) -> None:
    labels = list(dict.fromkeys(run.label for run in study.runs))
    for number, (label, colour) in enumerate(colours(labels).items()):
        runs = [run for run in study.runs if run.label == label]
        # Seeds beside each other, so that none hides another.
        shifts = (np.arange(len(runs)) - (len(runs) - 1) / 2) * min(0.12, 0.6 / len(runs))
        for run, shift in zip(runs, shifts, strict=True):
            scores = [run.best_score(region) for region in regions]
            x = number + shift
            ax.plot([x] * len(scores), scores, color=colour, linewidth=0.7, zorder=2)
            for region, score in zip(regions, scores, strict=True):
                face = colour if region == INSIDE else "white"
                marker = MARKERS[number % len(MARKERS)]
                style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "zorder": 3}
                ax.plot(x, score, marker, markersize=4, markeredgewidth=0.8, **style)
    for region in regions:
        chance = study.runs[0].regions[region].chance
        style = {"linestyle": "-" if region == INSIDE else ":", "linewidth": 0.8, "color": GREY}
        ax.axhline(chance, zorder=1, **style)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_ylim(-ROOM, 1 + ROOM)
    ax.set_yticks(np.linspace(0, 1, 6))
    letters = LETTERS if len(labels) <= 8 else LETTERS - 1.5
    # An option a line: a long name would run into its neighbour, turned into the maps below.
    names = [label.replace(":", ":\n").replace("+", "\n+") for label in labels]
    ax.set_xticks(range(len(labels)), names, fontsize=letters)
    if max(len(line) for name in names for line in name.split("\n")) > 80 / len(labels):
        ax.tick_params(axis="x", rotation=20)
    ax.set_ylabel("weight on equal places", fontsize=LETTERS, labelpad=2)
    ax.tick_params(axis="y", length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    ax.tick_params(axis="x", length=0, pad=3)
    ax.set_title(
        "The head that looks best in distribution",
        fontsize=LETTERS + 0.5,
        fontweight="bold",
        loc="left",
        pad=14,
    )
    grey: dict[str, Any] = {"color": GREY, "markersize": 4, "markeredgewidth": 0.8}
    handles = []
    for region in regions:
        face = GREY if region == INSIDE else "white"
        handles.append(
            Line2D([], [], linestyle="", marker="o", markerfacecolor=face, label=region, **grey)
        )
    for region in regions:
        label = "chance" + (" out" if region == OUTSIDE else " in" if len(regions) > 1 else "")
        style = {"linestyle": "-" if region == INSIDE else ":", "linewidth": 0.8, "color": GREY}
        handles.append(Line2D([], [], label=label, **style))
    ax.legend(
        handles=handles,
        fontsize=LETTERS - 0.5,
        frameon=False,
        ncols=len(handles),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.0,
        borderpad=0.1,
        handletextpad=0.3,
        columnspacing=1.0,
        handlelength=1.4,
    )
    ax.grid(visible=True, axis="y", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


def _places_note(study: Study) -> str:
    return (
        "Weight that the query which predicts the answer's digit of place r puts on the operands' "
        "digits of place r (on one, where the other is shorter), a mean over answer positions; a "
        "last carry and the end token do not count. The query is the token before that digit ('=' "
        "for the first). Red: the head that is best in distribution; its score is shown above, the "
        "filled marker in distribution, the hollow one out of it; a marker a run. It is chosen and "
        "shown on the same problems. Chance: a query that attends to all it sees alike. These runs "
        f"only. {sample_line(study)}"
    )
