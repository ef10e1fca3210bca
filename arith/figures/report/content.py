"""The content of a report: its parts as plain data, and every number that its script shows.

Shapes: N the longest operand scored. Cells are flat lists of N x N in the order of the grid:
cell (i, j), first operand of i digits and second of j, is entry (i - 1) N + j - 1.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from math import isfinite
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
import seaborn as sns

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.heatmap import (
    COLOURS,
    DIFFERENCES,
    cell_means,
    difference_limit,
    significant,
)
from tape_arith.arith.figures.leaderboard_data import Board, Section
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.regions import REGION_WORDS, Region, mask
from tape_arith.arith.scoring.statistics import over_seeds, wilson

MEAN = "mean"
"""The choice that is not one seed; the others are seeds as text."""
CURVES = ("loss", "exact_match", "out_of_distribution")
_MOST_POINTS, _MOST_STEPS = 200, 60
"""Points drawn of a curve, and steps of the learning of each length: every k-th and the last."""
_PARTS: tuple[Region, ...] = ("in_distribution", "one_longer", "both_longer")
"""Regions of which each cell is in one."""
_PENS = list(
    product(
        ("", "6 3", "2 3", "8 3 2 3"),
        ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#3a9bdc", "#8c6bb1", "#7f7f7f"),
    )
)
"""Dashes and colour of each encoding's curves, readable on light and on dark."""
T = TypeVar("T")
Curve = Sequence[tuple[int, float]]
"""(step, value), steps in order."""


@dataclass(frozen=True)
class Run:
    """One training run, as its folder describes it."""

    encoding: str
    """As it was trained, without what is added at test time."""
    seed: int
    folder: str
    facts: Mapping[str, str] = field(default_factory=dict)
    """Commit, torch, hardware, ...: the same names for all runs; "" for what is not recorded."""
    config: Mapping[str, int | float | str] = field(default_factory=dict)
    commands: Sequence[str] = ()
    """The commands that train and score it again."""
    recorded: str | None = None
    """The command line in its record."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """By the names of CURVES: "exact_match" of held-out problems of trained lengths, and
    "out_of_distribution" on the small grid, where it was scored."""
    by_length: Mapping[int, Curve] = field(default_factory=dict)
    """Exact match on the small grid by digits of the longer operand."""


@dataclass(frozen=True)
class Report:
    """The encodings of a page, how their runs came about, and what is left out."""

    panels: Sequence[Panel]
    """The grids of each encoding that is shown, one a seed; comparable with each other."""
    board: Board
    """The leaderboard; it may hold more encodings than are shown."""
    runs: Sequence[Run] = ()
    left_out: Sequence[tuple[str, str]] = ()
    """Runs that are not shown, and why."""
    command: str = ""
    """The command line that writes this page again."""

    @cached_property
    def sections(self) -> list[Section]:
        """The leaderboard's sections, of the encodings that are shown."""
        names = {panel[0].name for panel in self.panels}
        sections = [
            section._replace(standings=[s for s in section.standings if s.row.encoding in names])
            for section in self.board.sections
        ]
        return [section for section in sections if section.standings]

    @cached_property
    def ordered(self) -> list[list[Grid]]:
        """The panels in the leaderboard's order, seeds in order; an encoding's place in the list is
        its number in the page. Raises UsageError if the grids must not be compared."""
        panels = {grids[0].name: grids for grids in captions.checked_panels(self.panels)}
        return [panels[s.row.encoding] for section in self.sections for s in section.standings]

    @property
    def seeds(self) -> list[int]:
        """Every seed that any encoding has."""
        return sorted({grid.seed for panel in self.panels for grid in panel})


def content(report: Report) -> dict[str, Any]:
    """Return all that the page's script draws, as plain Python for JSON.

    Raises UsageError if the grids must not be compared.
    """
    first = report.ordered[0][0]
    parts = [mask(region, first.max_digits, first.trained_digits) for region in _PARTS]
    choices = [_choices(panel) for panel in report.ordered]
    totals = np.unique(np.concatenate([c["total"] for of in choices for c in of.values()]))
    return {
        "max_digits": first.max_digits,
        "trained_digits": first.trained_digits,
        "choices": [MEAN, *map(str, report.seeds)],
        "colours": colours(COLOURS),
        "differences": colours(DIFFERENCES),
        "regions": {
            "words": [REGION_WORDS[region] for region in _PARTS],
            "cells": "".join(map(str, np.argmax(parts, axis=0).ravel())),
        },
        "intervals": {int(total): _intervals(int(total)) for total in totals if total},
        "footnotes": _footnotes(report),
        "encodings": [
            {"name": panel[0].name, "choices": {key: _packed(c) for key, c in of.items()}}
            for panel, of in zip(report.ordered, choices, strict=True)
        ],
        "pairs": {choice: _pairs(report.ordered, choice) for choice in [MEAN, *report.seeds]},
        "curves": _curves(report),
        "lengths": _lengths(report.runs),
    }


def _choices(panel: Panel) -> dict[str, dict[str, Any]]:
    """One encoding for the mean of seeds and for each seed: its cells and the words about them."""
    choices: dict[str, Panel] = {MEAN: panel} | {str(grid.seed): [grid] for grid in panel}
    return {
        choice: {
            "seeds": [grid.seed for grid in grids],
            "exact": np.sum([grid.exact for grid in grids], axis=0).ravel(),
            "total": np.sum([grid.total for grid in grids], axis=0).ravel(),
            "share": _shares(grids),
            "lines": [captions.mean_line(grids, region) for region in captions.MEANS],
            "last": captions.seeds_line(grids),
            "mark": captions.convergence(grids),
        }
        for choice, grids in choices.items()
    }


def _shares(grids: Panel) -> list[float | None] | None:
    """The mean over seeds of exact match; None if the sums of the counts give it."""
    if all((grid.total == grids[0].total[0, 0]).all() for grid in grids) and grids[0].total.all():
        return None
    return [None if np.isnan(value) else round(float(value), 4) for value in cell_means(grids).flat]


def _packed(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice for JSON, with one number if all cells have the same total."""
    exact, total = choice["exact"].tolist(), choice["total"].tolist()
    return {**choice, "exact": exact, "total": total if len(set(total)) > 1 else total[0]}


def _intervals(total: int) -> list[str]:
    """Wilson's 95 % interval of 0 to `total` exact answers, in words."""
    ends = zip(*wilson(np.arange(total + 1), total), strict=True)
    return [f"{100 * low:.1f} % to {100 * high:.1f} %" for low, high in ends]


def _pairs(panels: Sequence[Panel], choice: object) -> dict[str, dict[str, Any]]:
    """The difference of every two encodings, first minus second, by their places: "0 1".

    `cells` are bits in base64, 1 for a significant difference, most significant bit first;
    `points` are the differences of the means in percentage points, null for an unknown one.
    """
    pairs = {}
    chosen = [[g for g in panel if choice in (MEAN, g.seed)] for panel in panels]
    made = [
        (i, grids, cell_means(grids), [over_seeds(grids, region) for region in captions.MEANS])
        for i, grids in enumerate(chosen)
        if grids
    ]
    for (i, one, first, means), (j, other, second, others) in combinations(made, 2):
        points = 100 * (first - second)
        known = ~np.isnan(points)
        differs = significant(one, other) & known
        pairs[f"{i} {j}"] = {
            "limit": difference_limit(points),
            "cells": base64.b64encode(np.packbits(differs).tobytes()).decode(),
            "said": f"{differs.sum()} of {known.sum()} cells differ significantly, these runs only",
            "points": [
                None if a is None or b is None else round(100 * (a.mean - b.mean), 6)
                for a, b in zip(means, others, strict=True)
            ],
        }
    return pairs


def _footnotes(report: Report) -> dict[str, str]:
    """The note under the maps, for the mean of seeds and for each seed."""
    notes = {MEAN: captions.footnote(report.ordered)}
    for seed in report.seeds:
        having = [panel for panel in report.ordered if any(grid.seed == seed for grid in panel)]
        notes[str(seed)] = captions.footnote(captions.checked_panels(having, seed))
    return notes


def colours(name: str) -> str:
    """Return 256 colours of a map, six hexadecimal digits each: those of the figures."""
    palette = sns.color_palette(name, as_cmap=True)(np.linspace(0, 1, 256))
    return "".join(mpl.colors.to_hex(colour)[1:] for colour in palette)


def _curves(report: Report) -> list[dict[str, Any]]:
    """What the runs of each trained encoding logged, in the order of the leaderboard.

    Of each quantity the lines of the seeds that logged it, and their mean at the steps that all of
    them have.
    """
    order = dict.fromkeys(panel[0].encoding for panel in report.ordered)
    result: list[dict[str, Any]] = []
    for name in dict.fromkeys((*order, *(run.encoding for run in report.runs))):
        runs = [run for run in report.runs if run.encoding == name and run.curves]
        if runs:
            lines = {c: [thinned(run.curves[c]) for run in runs if c in run.curves] for c in CURVES}
            quantities = {c: {"seeds": of, "mean": _mean_curve(of)} for c, of in lines.items()}
            dash, colour = _PENS[len(result) % len(_PENS)]
            result.append({"encoding": name, "colour": colour, "dash": dash, **quantities})
    return result


def _mean_curve(curves: Sequence[Curve]) -> list[tuple[int, float]]:
    """The mean at the steps that all curves have: elsewhere it would be of other runs."""
    values = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, values))) if values else []
    return [(step, _rounded(sum(v[step] for v in values) / len(values))) for step in steps]


def _lengths(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The learning of each length of the encodings that logged it, the mean of their seeds.

    `values` has a row a length and a column a step that all seeds have.
    """
    result = []
    for name in dict.fromkeys(run.encoding for run in runs if run.by_length):
        logged = [run for run in runs if run.encoding == name and run.by_length]
        digits = sorted(set.intersection(*(set(run.by_length) for run in logged)))
        means = [dict(_mean_curve([run.by_length[length] for run in logged])) for length in digits]
        steps = sorted(set.intersection(*map(set, means))) if means else []
        if steps:
            kept = _every(steps, _MOST_STEPS)
            result.append(
                {
                    "encoding": name,
                    "seeds": [run.seed for run in logged],
                    "lengths": digits,
                    "steps": kept,
                    "values": [[mean[step] for step in kept] for mean in means],
                }
            )
    return result


def thinned(curve: Curve) -> list[tuple[int, float]]:
    """Return a few hundred points and the last; drops what is not finite."""
    finite = [(step, value) for step, value in curve if isfinite(value)]
    return [(step, _rounded(value)) for step, value in _every(finite, _MOST_POINTS)]


def _every(items: Sequence[T], most: int) -> list[T]:
    """Every k-th of `items`, at most `most`, and the last.

    >>> _every(range(10), 4), _every("abcde", 2)
    ([0, 3, 6, 9], ['a', 'd', 'e'])
    """
    kept = list(items[:: max(-(-len(items) // most), 1)])
    return kept if not items or kept[-1] == items[-1] else [*kept, items[-1]]


def _rounded(value: float) -> float:
    """Four digits: more than a curve shows."""
    return float(f"{value:.4g}")
