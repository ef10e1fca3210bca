"""What the script of a report draws, as JSON.

Shapes: M x N is that of the grid. Cells are flat lists in the order of the grid: cell [i, j] is
entry i N + j. A grid of one axis has M = 1: its script draws a line over length, not a map.
"""

import base64
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.board import Board
from tape_arith.arith.compare.curves import by_seed
from tape_arith.arith.compare.lengths import cell, cell_pattern, longest_words
from tape_arith.arith.compare.report import Report
from tape_arith.arith.figures import style
from tape_arith.arith.figures.heatmap import difference_colours, difference_limit
from tape_arith.arith.figures.looks import looks_of
from tape_arith.arith.grids.axes import REGION_WORDS, Region, length_axes, region_mask, shape
from tape_arith.arith.grids.panel import Panel, significant_cells
from tape_arith.arith.grids.statistics import wilson

_PARTS: Mapping[int, tuple[Region, ...]] = {
    1: ("in_distribution", "out_of_distribution"),
    2: ("in_distribution", "one_longer", "both_longer"),
}
"""Regions that divide a grid of so many lengths: each cell is in exactly one."""
_SHOWN = 2
"""The curves that are drawn at first, if there are no references."""
_PEN = 2
"""Width of the lines of curves, in pixels, as in style.css."""


def content(report: Report) -> dict[str, Any]:
    """Return all that the page's script draws, as plain Python for JSON."""
    panels, first = report.panels, report.panels[0]
    regions = _PARTS[len(length_axes(first.axes))]
    parts = [region_mask(region, first.axes) for region in regions]
    # For each choice, the panels with something to show, by their place.
    chosen: dict[str, dict[int, Panel]] = {"mean": dict(enumerate(panels))}
    for seed in report.seeds:
        chosen[str(seed)] = {n: p.only(seed) for n, p in enumerate(panels) if seed in p.seeds}
    encodings = [
        {
            "name": report.board.label(panel.name),
            "choices": {key: _cells(shown[n]) for key, shown in chosen.items() if n in shown},
        }
        for n, panel in enumerate(panels)
    ]
    totals = {panel.problems_a_cell for shown in chosen.values() for panel in shown.values()}
    return {
        "shape": [1, *shape(first.axes)][-2:],
        "lines": len(first.axes) == 1,
        "shortest": [axis.shortest for axis in first.axes],
        "cell": cell_pattern(first.axes),
        "trained_digits": first.first.trained_digits,
        "longest": longest_words(first.axes),
        "choices": list(chosen),
        "colours": _colours(style.colours()),
        "differences": _colours(difference_colours()),
        "grey": style.PALE,
        "regions": {
            "words": [REGION_WORDS[region] for region in regions],
            "cells": "".join(map(str, np.argmax(parts, axis=0).ravel())),
        },
        "intervals": {total: _intervals(total) for total in sorted(totals)},
        "footnotes": {
            key: captions.footnote(list(shown.values()), report.board.labels)
            for key, shown in chosen.items()
        },
        "encodings": encodings,
        "pairs": {key: _pairs(shown) for key, shown in chosen.items()},
        **_curves(report.curves, report.board, panels),
    }


def _cells(panel: Panel) -> dict[str, Any]:
    """Return the counts of an encoding's cells, and the text above its map."""
    return {
        "seeds": panel.seeds,
        "exact": panel.exact.ravel().tolist(),
        "total": panel.problems_a_cell,
        "lines": [captions.mean_line(panel, region) for region in captions.MEANS],
        **(_bands(panel) if len(panel.axes) == 1 else {}),
        "last": captions.seeds_line(panel),
        "mark": panel.convergence,
    }


def _bands(panel: Panel) -> dict[str, list[float]]:
    """Return the ends of the interval at each length of a grid of one axis."""
    low, high = panel.cell_intervals()
    return {"low": list(map(_rounded, low)), "high": list(map(_rounded, high))}


def _intervals(total: int) -> list[str]:
    """Return Wilson's 95 % interval as text, for each count of exact answers from 0 to `total`."""
    ends = zip(*wilson(np.arange(total + 1), total), strict=True)
    return [f"{100 * low:.1f} % to {100 * high:.1f} %" for low, high in ends]


def _pairs(panels: Mapping[int, Panel]) -> dict[str, dict[str, Any]]:
    """Return the difference of every two encodings, first minus second, by their indices: "0 1".

    `cells` has a bit per cell in base64, 1 for a significant difference, the most significant bit
    first; `points` are the differences of the means in percentage points, null for an empty region.
    """
    pairs = {}
    cells = {place: panel.cell_means for place, panel in panels.items()}
    for (i, one), (j, other) in combinations(panels.items(), 2):
        differs = significant_cells(one, other)
        means = [(one.mean(region), other.mean(region)) for region in captions.MEANS]
        pairs[f"{i} {j}"] = {
            "limit": difference_limit(100 * (cells[i] - cells[j])),
            "cells": base64.b64encode(np.packbits(differs).tobytes()).decode(),
            "words": f"{differs.sum()} of {differs.size} {cell(one.axes)}s differ significantly, "
            "over problems, not over seeds",
            "points": [
                None if a is None or b is None else round(100 * (a - b), 6) for a, b in means
            ],
        }
    return pairs


def _colours(colormap: mpl.colors.Colormap) -> str:
    """Return 256 colours of a colour map of the figures, as six hexadecimal digits each."""
    return "".join(mpl.colors.to_hex(colour)[1:] for colour in colormap(np.linspace(0, 1, 256)))


def _curves(
    rows: pd.DataFrame, board: Board, panels: Sequence[Panel]
) -> dict[str, list[dict[str, Any]]]:
    """Return what the charts over lengths and over training draw of each encoding.

    `curves` has its seeds and their mean, at up to 200 steps. `lengths` has exact match by length,
    the mean over seeds, with a row per length and a column per step, at up to 60 steps.
    """
    scored = {panel.name: panel for panel in panels}
    curves = by_seed(rows)
    lines, learning = [], []
    encodings = list(rows.encoding.unique())
    shown = [name for name in encodings if name in board.references] or encodings[:_SHOWN]
    for encoding, look in looks_of(encodings).items():
        name = board.label(encoding)
        drawn: dict[str, Any] = {
            "encoding": name,
            "shown": encoding in shown,
            "colour": look.colour,
            "dash": " ".join(f"{_PEN * each:g}" for each in look.dashes),
        }
        for quantity in ("loss", "held_out", "out_of_distribution"):
            drawn[quantity] = _lines(_thinned(curves[encoding, quantity, 0], 200))
        if encoding in scored:
            drawn["by_length"] = _lines(pd.DataFrame(scored[encoding].seeds_by_length()).T)
        lines.append(drawn)
        by_length = rows[(rows.encoding == encoding) & (rows.quantity == "by_length")]
        if len(by_length):
            table = by_length.pivot_table(index="step", columns="part", values="value")
            means = _thinned(table, 60)
            learning.append(
                {
                    "encoding": name,
                    "seeds": sorted(by_length.seed.unique().tolist()),
                    "lengths": means.columns.tolist(),
                    "steps": means.index.tolist(),
                    "values": [list(map(_rounded, means[length])) for length in means],
                }
            )
    return {"curves": lines, "lengths": learning}


def _lines(seeds: pd.DataFrame) -> dict[str, Any]:
    """Return the points of each column, a seed, and of their mean."""
    return {
        "seeds": [_points(seeds[seed]) for seed in seeds if len(seeds)],
        "mean": _points(seeds.mean(axis=1)),
    }


def _thinned(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return every k-th row, at most `most` rows, and the last row."""
    count = len(table)
    return table.iloc[sorted({*range(0, count, max(-(-count // most), 1)), *range(count)[-1:]})]


def _points(values: "pd.Series[float]") -> list[tuple[int, float]]:
    return [(int(step), _rounded(value)) for step, value in values.items()]  # type: ignore[call-overload]


def _rounded(value: float) -> float:
    """Round to four significant digits, more than a curve shows."""
    return float(f"{value:.4g}")
