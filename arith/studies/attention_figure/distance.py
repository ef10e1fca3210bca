"""Attention weight by the distance of the key."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from tape_arith.arith.figures.looks import LINES
from tape_arith.arith.figures.style import LETTERS, lines
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.studies.attention_figure.page import EDGE, box, colours, legend, page
from tape_arith.arith.studies.attention_figure.study import INSIDE, REGIONS, Study, sample_line

MEAN, SEED = 1.3, 0.4
UNIFORM: dict[str, Any] = {"color": "#999999", "linewidth": 0.7}


def by_distance(study: Study) -> Figure:
    """A panel a layer, rows of panels in and out of distribution; of each encoding a thin line a
    run and a thick one for their mean."""
    regions = [region for region in REGIONS if region in study.runs[0].regions]
    layers = len(study.runs[0].regions[INSIDE].by_distance)
    columns = min(4, layers)
    across = -(-layers // columns)
    side, high, left, gap, between = 1.55, 1.3, 0.5, 0.16, 0.5
    width = left + columns * (side + gap)
    labels = list(dict.fromkeys(run.label for run in study.runs))
    several = len(labels) < len(study.runs)
    told = (
        "Thin: a run; thick: the mean of an encoding's runs, these"
        if several
        else "A line a run, these"
    )
    note = lines(
        "Weight on the key so many tokens back, a mean over queries that have one, heads and "
        "problems; distance 0 is the token itself. Grey: a query that attends to all it sees "
        f"alike. {told} runs only. {sample_line(study)}",
        (width - 2 * EDGE) * 72,
        LETTERS,
    )
    styles: dict[str, dict[str, Any]] = {
        # By colour and by style, for those who see no colours, or print none.
        label: {"color": colour, "linestyle": LINES[number % len(LINES)], "linewidth": MEAN}
        for number, (label, colour) in enumerate(colours(labels).items())
    }
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    handles.append(Line2D([], [], label="uniform", **UNIFORM))
    keys = 0.16 * -(-len(handles) // 4) + 0.1
    below = len(note) * LETTERS * 1.35 / 72 + keys + 0.1
    rows = [(region, part) for region in regions for part in range(across)]
    height = below + len(rows) * (high + between)
    figure = page(width, height, note)
    for row, (region, part) in enumerate(rows):
        for column in range(min(columns, layers - part * columns)):
            layer = part * columns + column
            y = height - row * (high + between) - high - 0.22
            inches = (left + column * (side + gap), y, side, high)
            ax = figure.add_axes(box(inches, width, height))
            _distances(ax, study, region, layer, styles)
            title = f"{region}, layer {layer + 1}" if column == 0 else f"layer {layer + 1}"
            ax.set_title(title, fontsize=LETTERS, fontweight="bold", loc="left", pad=3)
            if column == 0:
                ax.set_ylabel("mean weight", fontsize=LETTERS, labelpad=2)
            else:
                ax.set_yticklabels([])
            if (row + 1) % across == 0 or layer + columns >= layers:
                ax.set_xlabel("tokens back", fontsize=LETTERS, labelpad=1)
    legend(figure, handles, (below - keys) / height, EDGE / width)
    return figure


def _distances(
    ax: Axes, study: Study, region: str, layer: int, styles: Mapping[str, Mapping[str, Any]]
) -> None:
    for label, style in styles.items():
        weights = np.array(
            [run.regions[region].by_distance[layer] for run in study.runs if run.label == label]
        )
        if len(weights) > 1:
            for weight in weights:
                ax.plot(_drawn(weight), color=style["color"], linewidth=SEED, alpha=0.6)
        ax.plot(_drawn(weights.mean(0)), zorder=3, **style)
    ax.plot(study.runs[0].regions[region].uniform, zorder=1, **UNIFORM)
    ax.set(yscale="log", ylim=(1e-4, 1.0))
    ax.set_yticks([10.0**power for power in range(-4, 1)])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS - 0.5)
    ax.grid(visible=True, which="major", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)


def _drawn(weight: Floats) -> Floats:
    """Without what a logarithmic scale has no place for."""
    return np.where(weight > 0, weight, np.nan)
