"""Stability under positional shifts: the table and the figure.

Never imports torch: `stability.py` measures.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tape_arith.arith.figures.style import (
    GREY,
    LETTERS,
    finish,
    page,
    series_styles,
)
from tape_arith.arith.studies.study import Study, markdown, mean_cell

ROUNDING = {"float32": 3e-5, "float64": 1e-12}
"""Changes up to here may be rounding alone: some hundred units of it, in float64 some thousand,
because the angle of an index near 1000 is itself rounded by 1e-13 there."""
CHANGES = {
    "start 3": "indices start at 3",
    "start 1000": "indices start at 1000",
    "BOS": "three [BOS] in front",
}
"""The two of the paper, and a shift beyond every trained index."""
ATTENTION, RENORMALISED, PRODUCTS = "attention", "attention, renormalised", "inner products"
MEASURES = {
    ATTENTION: "attention weights",
    RENORMALISED: "attention weights, renormalised",
    PRODUCTS: "inner products of positions",
}
"""Quantities compared before and after a change. Renormalised: rows sum to 1 again without the
columns of the leading tokens (a row whose whole weight lay there stays zero)."""
_DEFINITION = (
    "Change: mean |difference| over mean |value|, over keys up to the query, heads and problems; "
    "behind [BOS] of the original tokens, raw and with rows that sum to 1 again. Inner products "
    "are those of the state that a layer's attention uses."
)


def to_markdown(study: Study) -> str:
    """Format a row for each encoding, precision, change and measure, a column a layer."""
    rows = study.labelled
    layers = int(rows.layer.max()) if rows.layer.notna().any() else 0
    body = []
    for key, group in rows.groupby(["label", "precision", "change", "measure"], sort=False):
        label, precision, change, measure = map(str, key)
        cells = [_cell(values, precision) for _, values in group.groupby("layer").value]
        seeds = ", ".join(map(str, group.seed.unique()))
        facts = [label, seeds, precision, CHANGES[change], MEASURES[measure]]
        body.append([*facts, *(cells or ["none"] * layers)])
    head = ["encoding", "seeds", "numbers", "change", "of"]
    head += [f"layer {layer}" for layer in range(1, layers + 1)]
    spread = " ± is the 95 % interval over seeds (Student t)." * study.several_seeds
    levels = ", ".join(f"{ROUNDING[precision]:g} in {precision}" for precision in ROUNDING)
    notes = [f"{_DEFINITION} r: not told from rounding (at most {levels}).{spread}"]
    for reason, group in rows.groupby("why", sort=False):
        notes.append(f"none ({reason}): {', '.join(group.label.unique())}.")
    notes.append(f"{study.source}{_untrained(study)}")
    return markdown(pd.DataFrame(body, columns=head), 5) + "".join(f"\n{note}\n" for note in notes)


def _cell(values: "pd.Series[float]", precision: str) -> str:
    """Format the mean of seeds, marked if all of them may be rounding.

    >>> _cell(pd.Series([2.13e-07]), "float32"), _cell(pd.Series([0.8712]), "float32")
    ('2.13e-07 r', '0.871')
    """
    small = all(0 < value <= ROUNDING[precision] for value in values)
    return mean_cell(values, ".3g") + " r" * small


def _untrained(study: Study) -> str:
    return " [BOS] is an untrained token of runs without it in training." * bool(
        (study.rows.leading_bos == 0).any()
    )


def figures(study: Study) -> dict[str, Figure]:
    """Draw a row of panels for attention weights, one for inner products if any encoding has them,
    and a column a change. Of two precisions draws the finer."""
    rows = study.labelled
    precision = str(rows.precision.max())
    level, rows = ROUNDING[precision], rows[(rows.precision == precision) & rows.value.notna()]
    panels = [[ATTENTION, RENORMALISED], *([[PRODUCTS]] if PRODUCTS in set(rows.measure) else [])]
    styles = series_styles(study.seeds)
    figure = page(6.7, 2.1 * len(panels), _note(study, precision), _handles(styles), 3)
    grid = figure.subplots(len(panels), len(CHANGES), squeeze=False)
    for axes, measures in zip(grid, panels, strict=True):
        for ax, (change, title) in zip(axes, CHANGES.items(), strict=True):
            drawn = rows[rows.measure.isin(measures) & (rows.change == change)]
            _draw_lines(ax, drawn, styles, dotted=ATTENTION if change == "BOS" else "")
            if change == "BOS":  # mostly far beyond rounding, near to each other
                ax.set_ylim(bottom=0)
            else:
                ax.axhspan(0, level, color="#e9e9e9", linewidth=0, zorder=0)
                ax.set_yscale("symlog", linthresh=level, linscale=0.4)
                ax.set_ylim(0, 3)
                ax.set_yticks([0, *10.0 ** np.arange(0, np.log10(level), -2)])
            ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            ax.set_xlabel("layer")
            finish(ax, title, grid="both")
        axes[0].set_ylabel(f"relative change,\n{MEASURES[measures[0]]}")
    return {"": figure}


def _draw_lines(
    ax: Axes, rows: pd.DataFrame, styles: Mapping[str, dict[str, Any]], dotted: str
) -> None:
    """Draw the mean of each encoding's runs with a thin line a run; of the measure `dotted` the
    mean alone, because thin lines would hide the others."""
    if rows.empty:
        ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", fontsize=LETTERS)
    for (label, measure), group in rows.groupby(["label", "measure"], sort=False):
        runs, style = group.pivot(index="layer", columns="run", values="value"), styles[str(label)]
        layers = runs.index.to_numpy(float)
        if len(runs.columns) > 1 and measure != dotted:
            ax.plot(layers, runs, color=style["color"], linewidth=0.5, alpha=0.5)
        line = (0, (1, 1.5)) if measure == dotted else "-"
        look: dict[str, Any] = {"linestyle": line, "linewidth": 0.9, "markersize": 3.2}
        ax.plot(layers, runs.mean(axis=1), **style, **look, clip_on=False, zorder=3)


def _handles(styles: Mapping[str, dict[str, Any]]) -> list[Artist]:
    """Return legend entries of the encodings and of the signs that the figure uses."""
    handles: list[Artist] = [Line2D([], [], label=label, **look) for label, look in styles.items()]
    handles.append(Patch(facecolor="#e9e9e9", label="not told from rounding"))
    handles.append(Line2D([], [], linestyle=(0, (1, 1.5)), color=GREY, label="raw, behind [BOS]"))
    return handles


def _note(study: Study, precision: str) -> str:
    return (
        f"Mean over runs, each run a thin line; in {precision}. {_DEFINITION} Band: at most "
        f"{ROUNDING[precision]:g}, not told from rounding. {study.source}{_untrained(study)}"
    )
