"""The content of a report, and the numbers that its script draws.

Shapes: N the longest operand scored. Cells are flat lists of N x N in the order of the grid:
cell (i, j), first operand of i digits and second of j, is entry (i - 1) N + j - 1.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.board import Board
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.curves import Learner
from tape_arith.arith.figures.heatmap import (
    COLOURS,
    DIFFERENCES,
    cell_means,
    difference_limit,
    significant,
)
from tape_arith.arith.scoring.grid import REGION_WORDS, Region, region_mask
from tape_arith.arith.scoring.statistics import over_seeds, wilson

MEAN = "mean"
"""The choice that is not one seed; the others are seeds as text."""
_PARTS: tuple[Region, ...] = ("in_distribution", "one_longer", "both_longer")
"""Regions of which each cell is in one."""
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#3a9bdc", "#8c6bb1", "#7f7f7f"]
"""The colours of curves, readable on light and on dark."""


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


@dataclass(frozen=True)
class Report:
    """The encodings of a page and their runs."""

    board: Board
    panels: Sequence[Panel]
    """The grids of each row of the leaderboard, one a seed, in its order."""
    runs: Sequence[Run] = ()
    learners: Sequence[Learner] = ()
    """The curves of each trained encoding, in the order of the leaderboard."""
    command: str = ""
    """The command line that writes this page again."""

    @property
    def seeds(self) -> list[int]:
        """Every seed that any encoding has."""
        return sorted({grid.seed for panel in self.panels for grid in panel})


def content(report: Report) -> dict[str, Any]:
    """Return all that the page's script draws, as plain Python for JSON.

    Raises UsageError if the grids must not be compared.
    """
    panels = captions.checked_panels(report.panels)
    first = panels[0][0]
    parts = [region_mask(region, first.max_digits, first.trained_digits) for region in _PARTS]
    choices = [_choices(panel) for panel in panels]
    totals = {shown["total"] for choice in choices for shown in choice.values()}
    chosen = {MEAN: panels} | {
        str(seed): [[grid for grid in panel if grid.seed == seed] for panel in panels]
        for seed in report.seeds
    }
    return {
        "max_digits": first.max_digits,
        "trained_digits": first.trained_digits,
        "choices": list(chosen),
        "colours": colours(COLOURS),
        "differences": colours(DIFFERENCES),
        "regions": {
            "words": [REGION_WORDS[region] for region in _PARTS],
            "cells": "".join(map(str, np.argmax(parts, axis=0).ravel())),
        },
        "intervals": {total: _intervals(total) for total in sorted(totals)},
        "footnotes": {
            key: captions.footnote(list(filter(None, shown))) for key, shown in chosen.items()
        },
        "encodings": [
            {"name": panel[0].name, "choices": choice}
            for panel, choice in zip(panels, choices, strict=True)
        ],
        "pairs": {key: _pairs(shown) for key, shown in chosen.items()},
        "curves": _curves(report.learners),
        "lengths": _lengths(report.learners),
    }


def _choices(panel: Panel) -> dict[str, dict[str, Any]]:
    """Return the cells of an encoding and the words about them, for the mean and each seed."""
    choices: dict[str, Panel] = {MEAN: panel} | {str(grid.seed): [grid] for grid in panel}
    return {
        choice: {
            "seeds": [grid.seed for grid in grids],
            "exact": np.sum([grid.exact for grid in grids], axis=0).ravel().tolist(),
            "total": sum(grid.blocks_done for grid in grids),
            "lines": [captions.mean_line(grids, region) for region in captions.MEANS],
            "last": captions.seeds_line(grids),
            "mark": captions.convergence(grids),
        }
        for choice, grids in choices.items()
    }


def _intervals(total: int) -> list[str]:
    """Return Wilson's 95 % interval of 0 to `total` exact answers, in words."""
    ends = zip(*wilson(np.arange(total + 1), total), strict=True)
    return [f"{100 * low:.1f} % to {100 * high:.1f} %" for low, high in ends]


def _pairs(panels: Sequence[Panel]) -> dict[str, dict[str, Any]]:
    """Return the difference of every two encodings, first minus second, by places: "0 1".

    `cells` are bits in base64, 1 for a significant difference, most significant bit first;
    `points` are the differences of the means in percentage points, null for an empty region.
    """
    pairs = {}
    made = [
        (place, grids, cell_means(grids), [over_seeds(grids, region) for region in captions.MEANS])
        for place, grids in enumerate(panels)
        if grids
    ]
    for (i, one, first, means), (j, other, second, other_means) in combinations(made, 2):
        points = 100 * (first - second)
        differs = significant(one, other)
        pairs[f"{i} {j}"] = {
            "limit": difference_limit(points),
            "cells": base64.b64encode(np.packbits(differs).tobytes()).decode(),
            "words": f"{differs.sum()} of {differs.size} cells differ significantly, "
            "these runs only",
            "points": [
                None if a is None or b is None else round(100 * (a.mean - b.mean), 6)
                for a, b in zip(means, other_means, strict=True)
            ],
        }
    return pairs


def colours(name: str) -> str:
    """Return 256 colours of a map, six hexadecimal digits each: those of the figures."""
    palette = sns.color_palette(name, as_cmap=True)(np.linspace(0, 1, 256))
    return "".join(mpl.colors.to_hex(colour)[1:] for colour in palette)


def _curves(learners: Sequence[Learner]) -> list[dict[str, Any]]:
    """Return the lines of the seeds of each encoding, and their mean, at up to 200 steps."""
    result = []
    for number, learner in enumerate(learners):
        curves: dict[str, Any] = {}
        for name, series in (
            ("loss", learner.loss),
            ("exact_match", learner.held_out),
            ("out_of_distribution", learner.out_of_distribution),
        ):
            rows = (np.mean(series.values, axis=0), *series.values) if series else ((),)
            places = _every(len(series.steps), 200)
            mean, *seeds = (
                [(series.steps[place], _rounded(row[place])) for place in places] for row in rows
            )
            curves[name] = {"seeds": seeds, "mean": mean}
        colour = _COLOURS[number % len(_COLOURS)]
        dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
        result.append({"encoding": learner.encoding, "colour": colour, "dash": dash, **curves})
    return result


def _lengths(learners: Sequence[Learner]) -> list[dict[str, Any]]:
    """Return the learning of each length of the encodings that logged it, the mean of their seeds.

    `values` has a row a length and a column a step, at up to 60 steps.
    """
    result = []
    for learner in learners:
        steps = next(iter(learner.by_length.values())).steps if learner.by_length else ()
        places = _every(len(steps), 60)
        if places:
            means = [np.mean(series.values, axis=0) for series in learner.by_length.values()]
            result.append(
                {
                    "encoding": learner.encoding,
                    "seeds": learner.seeds,
                    "lengths": list(learner.by_length),
                    "steps": [steps[place] for place in places],
                    "values": [[_rounded(mean[place]) for place in places] for mean in means],
                }
            )
    return result


def _every(count: int, most: int) -> list[int]:
    """Return every k-th of `count` places, at most `most`, and the last.

    >>> _every(10, 4), _every(5, 2), _every(0, 2)
    ([0, 3, 6, 9], [0, 3, 4], [])
    """
    return sorted({*range(0, count, max(-(-count // most), 1)), *range(count)[-1:]})


def _rounded(value: float) -> float:
    """Round to four digits: more than a curve shows."""
    return float(f"{value:.4g}")
