"""Attention patterns, drawn: by distance, on digits of the same place, and maps of one problem."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.heatmap import COLOURS
from tape_arith.arith.figures.style import (
    GREY,
    LETTERS,
    STYLE,
    figure_format,
    finish,
    line_styles,
    page,
    save,
    series_styles,
)
from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.studies.attention_data import INSIDE, AttentionStudy, Example, RunAttention

_RED = "#e0452f"
_UNIFORM: dict[str, Any] = {"color": "#999999", "linewidth": 0.7}
MOST_MAPS = 256


def draw(
    study: AttentionStudy, path: Path, layers: Sequence[int], heads: Sequence[int]
) -> list[Path]:
    """Write `path` with -distance, -places and, if there is an example, -maps (of `layers` and
    `heads`) before its ending (.png, .svg or .pdf); return the paths.

    Raises UsageError for another ending and for too many maps, Failure if the disk refuses.
    """
    kind = figure_format(path)
    written = []
    with mpl.rc_context(STYLE):
        figures = {"distance": by_distance(study), "places": places(study)}
        if study.example is not None:
            figures["maps"] = maps(study, study.example, layers, heads)
        for name, figure in figures.items():
            written.append(path.with_name(f"{path.stem}-{name}{path.suffix}"))
            save(figure, written[-1], kind)
    return written


# ---- by distance -------------------------------------------------------------------------------


def by_distance(study: AttentionStudy) -> Figure:
    """Draw weight by the distance of the key: a panel a layer, rows of panels in and out of
    distribution; of several runs of an encoding a thin line each and a thick one for their mean."""
    layers = len(study.regions[INSIDE].by_distance)
    columns = min(4, layers)
    rows_a_region = -(-layers // columns)
    # By colour and by dashes, for those who see no colours, or print none.
    styles = {
        label: look | {"linewidth": 1.3} for label, look in line_styles(study.by_label).items()
    }
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    handles.append(Line2D([], [], label="uniform", **_UNIFORM))
    several = len(study.by_label) < len(study.runs)
    lines = "Thin: a run; thick: the mean of an encoding's runs" if several else "A line a run"
    note = (
        "Weight on the key so many tokens back, a mean over queries that have one, heads and "
        "problems; distance 0 is the token itself. Grey: a query that attends to all it sees "
        f"alike. {lines}, these runs only. {study.source}"
    )
    rows = rows_a_region * len(study.regions)
    figure = page(max(4.0, 0.6 + 1.7 * columns), 1.75 * rows, note, handles)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for number, region in enumerate(study.regions):
        axes = grid[number * rows_a_region : (number + 1) * rows_a_region].flat
        for layer, ax in enumerate(axes):
            if layer >= layers:
                ax.remove()
                continue
            _draw_distances(ax, study, region, layer, styles)
            if layer % columns == 0:
                ax.set_ylabel("mean weight")
            if layer + columns >= layers:
                ax.set_xlabel("tokens back")
            title = f"layer {layer + 1}"
            finish(ax, title if layer else f"{region}, {title}", grid="both")
    return figure


def _draw_distances(
    ax: Axes, study: AttentionStudy, region: str, layer: int, styles: dict[str, dict[str, Any]]
) -> None:
    for label, runs in study.by_label.items():
        weights = np.array([run.regions[region].by_distance[layer] for run in runs])
        # A logarithmic scale has no place for zeros.
        drawn = np.vstack((weights, weights.mean(0)))
        *thin, mean = np.where(drawn > 0, drawn, np.nan)
        if len(thin) > 1:
            ax.plot(np.transpose(thin), color=styles[label]["color"], linewidth=0.4, alpha=0.6)
        ax.plot(mean, zorder=3, **styles[label])
    ax.plot(study.regions[region].uniform, zorder=1, **_UNIFORM)
    ax.set(yscale="log", ylim=(1e-4, 1.0))
    ax.set_yticks([10.0**power for power in range(-4, 1)])
    ax.yaxis.set_minor_locator(NullLocator())


# ---- places ------------------------------------------------------------------------------------


def places(study: AttentionStudy) -> Figure:
    """Draw weight on digits of the same place: above, the best head of each run, in and out of
    distribution; below, all layers and heads of each run."""
    layers, heads = study.regions[INSIDE].place.shape
    cell, regions = (0.2 if heads <= 8 else 0.12), len(study.regions)
    run_width = regions * (heads * cell + 0.1) + 0.5
    runs_a_row = max(1, min(len(study.runs), int(6.2 / run_width)))
    rows = -(-len(study.runs) // runs_a_row)
    above, row_height = 2.2, layers * cell + 0.75
    figure = page(
        max(4.6, runs_a_row * run_width + 0.8), above + rows * row_height, _places_note(study)
    )
    halves: Any = figure.subfigures(2, 1, height_ratios=(above, rows * row_height))
    top, bottom = halves
    _draw_best_heads(top.subplots(), study)
    grid = bottom.subplots(rows, runs_a_row * regions, squeeze=False)
    panels = iter(grid.flat)
    for run in study.runs:
        for region in study.regions:
            ax = next(panels)
            image = _heat(ax, run.regions[region].place)
            _outline(ax, *run.best, linewidth=1.2)
            short = region.removesuffix(" of distribution").removesuffix(" distribution")
            _titles(ax, run.title if region == INSIDE else "", short)
            steps = [range(0, count, -(-count // 8)) for count in (heads, layers)]
            ax.set_xticks(steps[0], [str(head + 1) for head in steps[0]])
            ax.set_yticks(steps[1], [str(n + 1) for n in steps[1]] if region == INSIDE else [])
            ax.tick_params(length=0, pad=1.5, labelsize=LETTERS - 0.5)
            ax.set_ylabel("layer" if region == INSIDE else "", fontsize=LETTERS, labelpad=1)
            ax.set_xlabel("head", fontsize=LETTERS, labelpad=1)
    for ax in panels:
        ax.remove()
    _colour_bar(bottom, image, grid)
    return figure


def _draw_best_heads(ax: Axes, study: AttentionStudy) -> None:
    """Draw a marker a run and region, in distribution filled, out of it hollow."""
    for number, (label, style) in enumerate(series_styles(study.by_label).items()):
        runs = study.by_label[label]
        # Seeds beside each other, so that none hides another.
        shifts = (np.arange(len(runs)) - (len(runs) - 1) / 2) * min(0.12, 0.6 / len(runs))
        for run, x in zip(runs, number + shifts, strict=True):
            scores = {region: run.best_score(region) for region in study.regions}
            ax.plot([x] * len(scores), [*scores.values()], color=style["color"], linewidth=0.7)
            for region, score in scores.items():
                ax.plot(x, score, **_marker(region, **style))
    handles = [
        Line2D([], [], label=region, **_marker(region, color=GREY, marker="o"))
        for region in study.regions
    ]
    for region, patterns in study.regions.items():
        look: Any = {"linestyle": "-" if region == INSIDE else ":", "linewidth": 0.8, "color": GREY}
        ax.axhline(patterns.chance, zorder=1, **look)
        handles.append(Line2D([], [], label=f"chance {region}", **look))
    # An option a line: a long name would run into its neighbour.
    names = [label.replace(":", ":\n").replace("+", "\n+") for label in study.by_label]
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(-0.05, 1.05)  # room for markers at the ends
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.set_ylabel("weight on equal places")
    finish(ax, "The head that addresses places best in distribution", pad=14)
    ax.tick_params(axis="x", length=0, labelsize=LETTERS - max(0, len(names) - 8) / 4)
    if max(len(line) for name in names for line in name.split("\n")) > 80 / len(names):
        ax.tick_params(axis="x", rotation=20)
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=len(handles),
        frameon=False,
        fontsize=LETTERS - 0.5,
        borderaxespad=0.0,
        borderpad=0.1,
        handletextpad=0.3,
        columnspacing=1.0,
        handlelength=1.4,
    )


def _marker(region: str, **style: Any) -> dict[str, Any]:
    face = style["color"] if region == INSIDE else "white"
    size = {"markersize": 4, "markeredgewidth": 0.8, "zorder": 3}
    return {"linestyle": "", "markerfacecolor": face, **size, **style}


def _places_note(study: AttentionStudy) -> str:
    return (
        "Weight that the query which predicts the answer's digit of place r puts on the operands' "
        "digits of place r (on one, where the other is shorter), a mean over answer positions; a "
        "last carry and the end token do not count. The query is the token before that digit ('=' "
        "for the first). Red: the head that is best in distribution; its score is shown above, a "
        "marker a run. It is chosen and shown on the same problems. Chance: a query that attends "
        f"to all it sees alike. These runs only. {study.source}"
    )


# ---- maps --------------------------------------------------------------------------------------


def maps(
    study: AttentionStudy, example: Example, layers: Sequence[int], heads: Sequence[int]
) -> Figure:
    """Draw maps of the example: a row a run and layer, a column a head; queries downwards, keys to
    the right. Raises UsageError for too many."""
    rows = [(run, layer) for run in study.runs for layer in layers]
    if len(rows) * len(heads) > MOST_MAPS:
        raise UsageError(
            f"{len(rows) * len(heads)} maps are too many for a figure: choose --layers and --heads"
        )
    tokens = example.tokens[:-1]
    side = max(1.15, 0.085 * len(tokens))
    letters = min(6.5, 0.8 * 72 * side / len(tokens))
    width = max(3.0, len(heads) * (side + 0.12) + 0.8 + 0.09 * letters)
    figure = page(width, len(rows) * (side + 0.45) + 0.2, _maps_note(example))
    grid = figure.subplots(len(rows), len(heads), squeeze=False)
    for axes, (run, layer) in zip(grid, rows, strict=True):
        for ax, head in zip(axes, heads, strict=True):
            image = _draw_map(ax, run, layer, head, example)
            _titles(ax, f"{run.title}, layer {layer + 1}" * (ax is axes[0]), f"head {head + 1}")
            ax.set_xticks(range(len(tokens)), [])
            ax.set_yticks(range(len(tokens)), _queries(example) if ax is axes[0] else [])
            ax.tick_params(length=0, pad=1.5, labelsize=letters)
        axes[0].set_ylabel("query", fontsize=LETTERS, labelpad=2)
    for ax in grid[-1]:
        ax.set_xticks(range(len(tokens)), tokens)
        ax.set_xlabel("key", fontsize=LETTERS, labelpad=2)
    _colour_bar(figure, image, grid)
    return figure


def _draw_map(ax: Axes, run: RunAttention, layer: int, head: int, example: Example) -> AxesImage:
    assert run.maps is not None
    weights = run.maps[layer, head]
    image = _heat(ax, np.where(np.tri(len(weights), dtype=bool), weights, np.nan))
    for query, key in example.equal_places:
        _outline(ax, query, key, linewidth=0.8)
    ax.spines[:].set_visible(False)
    return image


def _queries(example: Example) -> list[str]:
    """Return the label of each query: its token, with an arrow to the answer's token it predicts.

    >>> _queries(Example("4+5", ("4", "+", "5", "=", "9", "[EOS]"), 4, ()))
    ['4', '+', '5', '=→9', '9→[EOS]']
    """
    pairs = zip(example.tokens, example.tokens[1:], strict=False)
    return [
        f"{token}\N{RIGHTWARDS ARROW}{following}" if place >= example.prompt - 1 else token
        for place, (token, following) in enumerate(pairs)
    ]


def _maps_note(example: Example) -> str:
    sequence = "".join(example.tokens[:-1])
    return (
        f"{example.written} stands in the sequence as {sequence}, every number its least "
        "significant digit first, and so it does on the axes. Rows are queries, with an arrow to "
        "the token that they predict where it is the answer's; columns are keys; white: not seen. "
        "Red squares: the operands' digits of the place that is predicted. These runs only."
    )


def _heat(ax: Axes, weights: Floats) -> AxesImage:
    return ax.imshow(weights, cmap=COLOURS, vmin=0, vmax=1)


def _titles(ax: Axes, bold: str, plain: str) -> None:
    """Write two lines above a panel; the bold one may continue above the next panel."""
    ax.set_title(bold, fontsize=LETTERS + 0.5, fontweight="bold", loc="left", pad=11)
    at: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(plain, (0, 1), xytext=(0, 2.5), fontsize=LETTERS, **at)


def _outline(ax: Axes, row: int, column: int, linewidth: float) -> None:
    square = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=_RED)
    square.set(linewidth=linewidth, clip_on=False, zorder=3)
    ax.add_patch(square)


def _colour_bar(figure: Any, image: AxesImage, grid: Any) -> None:
    """Draw the scale from 0 to 1 at the right of the first row of `grid`."""
    axes = [ax for ax in grid[0] if ax.figure is not None]
    bar = figure.colorbar(image, ax=axes, ticks=[0, 0.5, 1], aspect=14, pad=0.02)
    bar.set_label("weight", fontsize=LETTERS, labelpad=2)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    bar.outline.set_linewidth(0.5)
