"""Attention weight by the distance of the key."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from arith.figures.attention.page import EDGE, GREY, box, legend, page
from arith.figures.attention.study import INSIDE, REGIONS, Study, sample_line
from arith.figures.heatmap import lines
from arith.figures.scaling import LETTERS


def by_distance(study: Study) -> Figure:
    """A panel a layer, rows of panels in and out of distribution; a line a run."""
    regions = [region for region in REGIONS if region in study.runs[0].regions]
    layers = len(study.runs[0].regions[INSIDE].by_distance)
    columns = min(4, layers)
    across = -(-layers // columns)
    side, high, left, gap, between = 1.55, 1.3, 0.5, 0.16, 0.5
    width = left + columns * (side + gap)
    note = lines(
        "Weight on the key so many tokens back, a mean over queries that have one, heads and "
        "problems; distance 0 is the token itself. Dashed: a query that attends to all it sees "
        f"alike. A line a run, these runs only. {sample_line(study)}",
        (width - 2 * EDGE) * 72,
        LETTERS,
    )
    labels = list(dict.fromkeys(run.label for run in study.runs))
    colours = dict(zip(labels, sns.color_palette("colorblind", len(labels)), strict=True))
    handles = [Line2D([], [], color=colours[label], label=label) for label in labels]
    handles.append(Line2D([], [], color=GREY, linestyle="--", label="uniform"))
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
            _distances(ax, study, region, layer, colours)
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
    ax: Axes, study: Study, region: str, layer: int, colours: dict[str, tuple[float, float, float]]
) -> None:
    for run in study.runs:
        weight = run.regions[region].by_distance[layer]
        ax.plot(np.where(weight > 0, weight, np.nan), color=colours[run.label], linewidth=0.8)
    ax.plot(study.runs[0].regions[region].uniform, color=GREY, linewidth=0.7, linestyle="--")
    ax.set(yscale="log", ylim=(1e-4, 1.0))
    ax.set_yticks([10.0**power for power in range(-4, 1)])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.tick_params(which="both", length=2, width=0.5, pad=1.5, labelsize=LETTERS - 0.5)
    ax.grid(visible=True, which="major", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    sns.despine(ax=ax)
