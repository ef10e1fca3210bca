"""Attention patterns: tables, and figures by distance, on equal places and of one problem.

Never imports torch: `attention.py` measures.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.figures.heatmap import COLOURS
from tape_arith.arith.figures.style import (
    LETTERS,
    finish,
    line_styles,
    page,
    series_styles,
)
from tape_arith.arith.scoring.grid import REGION_WORDS
from tape_arith.arith.studies.study import INSIDE, Study, by_label, markdown, mean_cell

_RED = "#e0452f"
_UNIFORM: dict[str, Any] = {"color": "#999999", "linewidth": 0.7}
_MOST_LAYERS = 4
_PLACES = (
    "Weight that the query which predicts the answer's digit of place r (the token before it) puts "
    "on the operands' digits of place r (on one, if the other is shorter), a mean over answer "
    "positions; a last carry and the end token do not count. The best head is chosen in "
    "distribution and measured on the same problems. Chance, uniform: a query that attends to all "
    "it sees alike."
)


def _measured(study: Study, measure: str) -> pd.DataFrame:
    """Return the labelled rows of one measure: distance, place or map."""
    rows = study.labelled
    return rows[rows.measure == measure]


def _best_heads(study: Study) -> pd.DataFrame:
    """Return the rows `place`, in each region, of the head of each run that addresses places best
    in distribution."""
    heads = _measured(study, "place")
    inside = heads[heads.region == INSIDE]
    best = inside.loc[inside.groupby("run", sort=False).weight.idxmax(), ["run", "layer", "head"]]
    return best.merge(heads)


# ---- tables ------------------------------------------------------------------------------------


def to_markdown(study: Study) -> str:
    """Format a table of place addressing and one of the weight on the diagonal, with means."""
    spread = " ± is the 95 % interval over seeds (Student t)." * study.several_seeds
    tables = markdown(_places_table(study), 3), markdown(_diagonal_table(study), 2)
    return "\n".join([*tables, f"Place addressing: {_PLACES}{spread} {study.source}\n"])


def _places_table(study: Study) -> pd.DataFrame:
    """Return a row a run, and one for all runs of an encoding."""
    body = []
    for label, runs in by_label(_best_heads(study)):
        heads = runs.groupby(["seed", "layer", "head"], sort=False)
        lines = [(f"{seed}", f"layer {n}, head {m}", rows) for (seed, n, m), rows in heads]
        if len(lines) > 1:
            lines.append((f"all {len(lines)}", "", runs))
        for seed, head, rows in lines:
            cells = {"encoding": label, "seed": seed, "best head": head}
            for region in study.regions:
                scores = rows[rows.region == region]
                cells[f"place, {REGION_WORDS[region]}"] = mean_cell(scores.weight)
                cells[f"chance {REGION_WORDS[region]}"] = f"{scores.uniform.iloc[0]:.3f}"
            body.append(cells)
    return pd.DataFrame(body)


def _diagonal_table(study: Study) -> pd.DataFrame:
    rows = _measured(study, "distance").query("distance == 0")
    tables = {}
    for region in study.regions:
        inside = rows[rows.region == region]
        table = inside.groupby(["label", "layer"], sort=False).weight.agg(mean_cell).unstack()
        table.loc["uniform"] = inside.groupby("layer").uniform.first().map("{:.3f}".format)
        tables[REGION_WORDS[region]] = table.rename(columns="layer {}".format)
    return pd.concat(tables, names=["weight on the diagonal", "encoding"]).reset_index()


# ---- figures -----------------------------------------------------------------------------------


def figures(study: Study) -> dict[str, Figure]:
    """Draw weight by distance, on equal places and, if there is an example, its maps."""
    drawn = {"-distance": _by_distance(study), "-places": _places(study)}
    return drawn | ({"-maps": _maps(study)} if study.facts["example"] else {})


def _by_distance(study: Study) -> Figure:
    """Draw weight by the distance of the key: a row a region, a column a layer; of several runs of
    an encoding a thin line each and a thick one for their mean."""
    rows = _measured(study, "distance")
    last = int(rows.layer.max())
    layers = np.unique(np.linspace(1, last, min(last, _MOST_LAYERS)).round().astype(int))
    # By colour and by dashes, for those who see no colours, or print none.
    styles = line_styles(study.seeds)
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    handles.append(Line2D([], [], label="uniform", **_UNIFORM))
    note = (
        "Weight on the key so many tokens back, a mean over queries that have one, heads and "
        f"problems; 0 is the token itself. Layers {', '.join(map(str, layers))} of {last}. "
        "Uniform: a query that attends to all it sees alike. Thin: a run; thick: the mean of an "
        f"encoding's runs. {study.source}"
    )
    width = max(4.0, 0.6 + 1.7 * len(layers))
    figure = page(width, 1.75 * len(study.regions), note, handles)
    grid = figure.subplots(len(study.regions), len(layers), squeeze=False, sharey=True)
    for axes, region in zip(grid, study.regions, strict=True):
        for ax, layer in zip(axes, layers, strict=True):
            panel = rows[(rows.region == region) & (rows.layer == layer)]
            for label, group in by_label(panel):
                runs = group.pivot(index="distance", columns="run", values="weight")
                if len(runs.columns) > 1:
                    ax.plot(runs, color=styles[label]["color"], linewidth=0.4, alpha=0.6)
                ax.plot(runs.mean(axis=1), linewidth=1.3, zorder=3, **styles[label])
            ax.plot(panel.groupby("distance").uniform.first(), zorder=1, **_UNIFORM)
            ax.set(yscale="log", ylim=(1e-4, 1.0), xlabel="tokens back")
            finish(ax, f"{REGION_WORDS[region]}, layer {layer}", grid="both")
        axes[0].set_ylabel("mean weight")
    return figure


def _places(study: Study) -> Figure:
    """Draw weight on digits of the same place, a panel a region: a point each head of each run, by
    layer, and larger and framed the head of each run that is best in distribution."""
    heads, best = _measured(study, "place"), _best_heads(study)
    styles = series_styles(study.seeds)
    framed: dict[str, Any] = {"markersize": 5, "markeredgecolor": "black", "markeredgewidth": 1}
    handles = [
        *(Line2D([], [], label=label, linestyle="", **style) for label, style in styles.items()),
        Line2D([], [], label="best", linestyle="", marker="o", markerfacecolor="white", **framed),
        Line2D([], [], label="chance", **_UNIFORM),
    ]
    figure = page(6.0, 1.9 * len(study.regions), f"{_PLACES} {study.source}", handles)
    axes = figure.subplots(len(study.regions), squeeze=False).flat
    for ax, region in zip(axes, study.regions, strict=True):
        # Encodings beside each other within a layer, so that none hides another.
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


def _maps(study: Study) -> Figure:
    """Draw maps of the example, a row a run and a column a head; queries downwards."""
    rows, example = _measured(study, "map"), study.facts["example"]
    runs, heads = rows.groupby("run", sort=False), rows["head"].unique()
    tokens = example["tokens"][:-1]
    side, ticks = max(1.15, 0.085 * len(tokens)), range(len(tokens))
    letters = min(6.5, 0.8 * 72 * side / len(tokens))
    width = max(3.0, len(heads) * (side + 0.12) + 0.8 + 0.09 * letters)
    figure = page(width, len(runs) * (side + 0.45) + 0.2, _maps_note(example))
    grid = figure.subplots(len(runs), len(heads), squeeze=False, sharex=True, sharey=True)
    for axes, (_, run) in zip(grid, runs, strict=True):
        title = f"{run.label.iloc[0]}, seed {run.seed.iloc[0]}, layer {example['layer']}\n"
        for ax, (head, weights) in zip(axes, run.groupby("head"), strict=True):
            square = weights.pivot(index="query", columns="key", values="weight")
            image = ax.imshow(square, cmap=COLOURS, vmin=0, vmax=1)
            for query, key in example["equal_places"]:
                look: dict[str, Any] = {"fill": False, "edgecolor": _RED, "linewidth": 0.8}
                ax.add_patch(Rectangle((key - 0.5, query - 0.5), 1, 1, clip_on=False, **look))
            title, heading = "", f"{title}head {head}"
            ax.set_title(heading, fontsize=LETTERS, loc="left", pad=2)
            ax.set_xticks(ticks, tokens)
            ax.set_yticks(ticks, _queries(example))
            ax.tick_params(length=0, pad=1.5, labelsize=letters)
            ax.spines[:].set_visible(False)
        axes[0].set_ylabel("query", fontsize=LETTERS, labelpad=2)
    for ax in grid[-1]:
        ax.set_xlabel("key", fontsize=LETTERS, labelpad=2)
    place: dict[str, Any] = {"shrink": 1 / len(runs), "anchor": (0, 1), "aspect": 14, "pad": 0.02}
    bar = figure.colorbar(image, ax=grid, ticks=[0, 0.5, 1], **place)
    bar.set_label("weight", fontsize=LETTERS, labelpad=2)
    bar.ax.tick_params(length=2, width=0.5, pad=1.5, labelsize=LETTERS)
    return figure


def _queries(example: dict[str, Any]) -> list[str]:
    """Return the label of each query: its token, with an arrow to the answer's token it predicts.

    >>> _queries({"tokens": ["4", "+", "5", "=", "9", "[EOS]"], "prompt": 4})
    ['4', '+', '5', '=→9', '9→[EOS]']
    """
    pairs = zip(example["tokens"], example["tokens"][1:], strict=False)
    return [
        f"{token}\N{RIGHTWARDS ARROW}{following}" if place >= example["prompt"] - 1 else token
        for place, (token, following) in enumerate(pairs)
    ]


def _maps_note(example: dict[str, Any]) -> str:
    return (
        f"Attention in {''.join(example['tokens'][:-1])}, every number its least significant digit "
        "first, as in the sequence. Rows are queries, with an arrow to the token that they predict "
        "where it is the answer's; columns are keys; white: not seen. Red squares: the operands' "
        "digits of the place that is predicted. These runs only."
    )
