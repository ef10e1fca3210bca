"""Figures of attention patterns: weight by distance, on digits of equal places, and maps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.figures.style import LETTERS, colours, finish, page, write_title
from tape_arith.arith.grids.axes import REGION_WORDS
from tape_arith.arith.studies.study import Study, draw_runs

_RED = "#e0452f"
_UNIFORM: dict[str, Any] = {"color": "#999999", "linewidth": 0.7}
_MOST_LAYERS = 4
PLACES = (
    "Mean weight that the query which predicts the answer's digit of place r puts on the operands' "
    "digits of place r; a last carry and the end token do not count. The best head is chosen in "
    "distribution, on the same problems; chance is equal weight on all keys that a query sees."
)
"""The measure of place addressing, in words."""


def draw_distances(study: Study, rows: pd.DataFrame) -> Figure:
    """Draw weight by distance of the key: one row per region, one column per layer."""
    last = int(rows.layer.max())
    layers = np.unique(np.linspace(1, last, min(last, _MOST_LAYERS)).round().astype(int))
    # Lines differ in colour and in dashes, for readers and printers without colours.
    styles = {label: look.line for label, look in study.looks.items()}
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    handles.append(Line2D([], [], label="uniform", **_UNIFORM))
    note = (
        "Weight on the key so many tokens back (0: the token itself), a mean over queries, heads "
        "and problems; thin lines are runs, thick ones their mean. Uniform: equal weight on all "
        f"keys that a query sees. {study.source}"
    )
    width = max(4.0, 0.6 + 1.7 * len(layers))
    figure = page(width, 1.75 * len(study.regions), note, handles)
    grid = figure.subplots(len(study.regions), len(layers), squeeze=False, sharey=True)
    for axes, region in zip(grid, study.regions, strict=True):
        for ax, layer in zip(axes, layers, strict=True):
            panel = rows[(rows.region == region) & (rows.layer == layer)]
            draw_runs(ax, panel, "distance", "weight", styles, linewidth=1.3)
            ax.plot(panel.groupby("distance").uniform.first(), zorder=1, **_UNIFORM)
            ax.set(yscale="log", ylim=(1e-4, 1.0), xlabel="tokens back")
            finish(ax, f"{REGION_WORDS[region]}, layer {layer}", grid="both")
        axes[0].set_ylabel("mean weight")
    return figure


def draw_places(study: Study, heads: pd.DataFrame, best: pd.DataFrame) -> Figure:
    """Draw weight on digits of the same place by layer: one panel per region, one point per head.

    The head of each run that is best in distribution is larger and framed.
    """
    styles = study.points
    framed: dict[str, Any] = {"markersize": 5, "markeredgecolor": "black", "markeredgewidth": 1}
    handles = [
        *(Line2D([], [], label=label, linestyle="", **style) for label, style in styles.items()),
        Line2D([], [], label="best", linestyle="", marker="o", markerfacecolor="white", **framed),
        Line2D([], [], label="chance", **_UNIFORM),
    ]
    figure = page(6.0, 1.9 * len(study.regions), f"{PLACES} {study.source}", handles)
    axes = figure.subplots(len(study.regions), squeeze=False).flat
    for ax, region in zip(axes, study.regions, strict=True):
        # Within a layer, encodings are side by side, so that none hides another.
        for shift, (label, style) in zip(
            np.linspace(-0.3, 0.3, len(styles)), styles.items(), strict=True
        ):
            for rows, look in ((heads, {"markersize": 2.5}), (best, framed)):
                points = rows[(rows.region == region) & (rows.label == label)]
                x = points.layer.astype(float) + shift
                ax.plot(x, points.weight, linestyle="", clip_on=False, **style, **look)
        chance = heads[heads.region == region].uniform.iloc[0]
        ax.axhline(chance, zorder=1, **_UNIFORM)
        ax.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
        ax.set(ylim=(0, 1), xlabel="layer", ylabel="weight on equal places")
        finish(ax, REGION_WORDS[region])
    return figure


def draw_maps(rows: pd.DataFrame, example: Mapping[str, Any]) -> Figure:
    """Draw maps of the example: one row per run, one column per head, queries downwards."""
    runs, heads = rows.groupby("run", sort=False), rows["head"].unique()
    tokens, prompt = example["tokens"][:-1], example["prompt"]
    predicted = [f"\N{RIGHTWARDS ARROW}{token}" for token in example["tokens"][prompt:]]
    answers = [query + token for query, token in zip(tokens[prompt - 1 :], predicted, strict=True)]
    order = squares = ""
    if example["equal_places"]:
        order = ", every number its least significant digit first, as in the sequence"
        squares = " Red squares: the operands' digits of the place that is predicted."
    note = (
        f"Attention in {''.join(tokens)}{order}. Rows are queries, with an arrow to the token that "
        "they predict where it is the answer's; columns are keys; white: not seen."
        f"{squares} These runs only."
    )
    side, ticks = max(1.15, 0.085 * len(tokens)), range(len(tokens))
    letters = min(6.5, 0.8 * 72 * side / len(tokens))
    width = max(3.0, len(heads) * (side + 0.12) + 0.8 + 0.09 * letters)
    figure = page(width, len(runs) * (side + 0.45) + 0.2, note)
    grid = figure.subplots(len(runs), len(heads), squeeze=False, sharex=True, sharey=True)
    for axes, (_, run) in zip(grid, runs, strict=True):
        title = f"{run.label.iloc[0]}, seed {run.seed.iloc[0]}, layer {example['layer']}\n"
        for ax, (head, weights) in zip(axes, run.groupby("head"), strict=True):
            square = weights.pivot(index="query", columns="key", values="weight")
            image = ax.imshow(square, cmap=colours(), vmin=0, vmax=1)
            for query, key in example["equal_places"]:
                look: dict[str, Any] = {"fill": False, "edgecolor": _RED, "linewidth": 0.8}
                ax.add_patch(Rectangle((key - 0.5, query - 0.5), 1, 1, clip_on=False, **look))
            write_title(ax, f"{title}head {head}", fontsize=LETTERS, pad=2)
            title = ""
            ax.set_xticks(ticks, tokens)
            ax.set_yticks(ticks, [*tokens[: prompt - 1], *answers])
            ax.tick_params(length=0, pad=1.5, labelsize=letters)
            ax.spines[:].set_visible(False)
        axes[0].set_ylabel("query", fontsize=LETTERS, labelpad=2)
    for ax in grid[-1]:
        ax.set_xlabel("key", fontsize=LETTERS, labelpad=2)
    shape: dict[str, Any] = {"shrink": 1 / len(runs), "anchor": (0, 1), "aspect": 14, "pad": 0.02}
    bar = figure.colorbar(image, ax=grid, ticks=[0, 0.5, 1], **shape)
    bar.set_label("weight", fontsize=LETTERS, labelpad=2)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    return figure
