"""What a report says, as plain data: the numbers of the grids, the curves, facts of every run.

Shapes: N the longest operand scored. Counts are lists of N rows of N cells, row i - 1 for first
operands of i digits, as in the grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from tape_arith.arith.figures import captions
from tape_arith.arith.figures.captions import Panel
from tape_arith.arith.figures.heatmap import COLOURS, DIFFERENCES, DISCOVERY_RATE
from tape_arith.arith.figures.leaderboard_data import Board, Section
from tape_arith.arith.scoring.grid import Grid, Ints

SCHEMA = 2
MOST_POINTS = 200
"""So many points of a curve are drawn; of longer ones every k-th is taken, and the last."""
MOST_STEPS = 60
"""So many steps of the learning of each length."""
MEAN = "mean"
"""The choice that is not one seed; the others are seeds as text."""
T = TypeVar("T")
CURVES = ("loss", "exact_match", "out_of_distribution")
Curve = Sequence[tuple[int, float]]
"""(step, value), steps in order."""


@dataclass(frozen=True)
class Run:
    """One training run, as its folder tells of it."""

    encoding: str
    """As it was trained, without what is added at test time."""
    seed: int
    folder: str
    facts: Mapping[str, str] = field(default_factory=dict)
    """What is listed of it: commit, torch, hardware, ..., in this order; all runs alike."""
    config: Mapping[str, int | float | str] = field(default_factory=dict)
    commands: Sequence[str] = ()
    """What trains and scores it again."""
    recorded: str | None = None
    """The command line that it says it came from."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """What was logged on the way: "loss", "exact_match" (held-out, trained lengths) and, where the
    small grid was scored, its "out_of_distribution"."""
    by_length: Mapping[int, Curve] = field(default_factory=dict)
    """Exact match on the small grid by digits of the longer operand."""


@dataclass(frozen=True)
class Report:
    """All that goes into a page: what is compared, how it came about, what was left out."""

    panels: Sequence[Panel]
    """The grids of each encoding that is shown, one a seed; comparable with each other."""
    board: Board
    """The leaderboard; it may hold more encodings than are shown."""
    runs: Sequence[Run] = ()
    left_out: Sequence[tuple[str, str]] = ()
    """What is not in it, and why."""
    command: str = ""
    """What writes this page again."""

    @property
    def sections(self) -> list[Section]:
        """The leaderboard's, as far as they are shown."""
        names = {panel[0].name for panel in self.panels}
        sections = [
            section._replace(standings=[s for s in section.standings if s.row.encoding in names])
            for section in self.board.sections
        ]
        return [section for section in sections if section.standings]

    @property
    def ordered(self) -> list[list[Grid]]:
        """The panels in the leaderboard's order, seeds in order: a place in it is an encoding's
        number in the page. Errors: UsageError where the grids must not be compared."""
        of = {grids[0].name: grids for grids in captions.chosen(self.panels)}
        return [of[s.row.encoding] for section in self.sections for s in section.standings]

    @property
    def seeds(self) -> list[int]:
        """Every seed that any encoding has."""
        return sorted({grid.seed for panel in self.panels for grid in panel})


def content(report: Report) -> dict[str, Any]:
    """What the page's script draws, as plain Python for JSON.

    Errors: UsageError where the grids must not be compared.
    """
    first = report.ordered[0][0]
    return {
        "schema": SCHEMA,
        "max_digits": first.max_digits,
        "trained_digits": first.trained_digits,
        "seeds": report.seeds,
        "colours": colours(COLOURS),
        "differences": colours(DIFFERENCES),
        "discovery_rate": DISCOVERY_RATE,
        "footnotes": footnotes(report),
        "encodings": [encoding(panel) for panel in report.ordered],
        "curves": curves(report.runs),
        "lengths": lengths(report.runs),
    }


def encoding(panel: Panel) -> dict[str, Any]:
    """One encoding: its counts, and what is said of it for the mean of seeds and for each seed."""
    choices: dict[str, Panel] = {MEAN: panel} | {str(grid.seed): [grid] for grid in panel}
    return {
        "name": panel[0].name,
        "grids": [
            {"seed": grid.seed, "exact": grid.exact.tolist(), "total": packed(grid.total)}
            for grid in panel
        ],
        "said": {
            choice: {
                "lines": [captions.mean_line(chosen, region) for region in captions.MEANS],
                "seeds": captions.seeds_line(chosen),
                "mark": captions.convergence(chosen),
                "means": {region: mean(chosen, region) for region in captions.MEANS},
            }
            for choice, chosen in choices.items()
        },
    }


def mean(panel: Panel, region: Any) -> float | None:
    """The mean over seeds of a region's mean, 0..1; None where any of them misses a cell."""
    values = [grid.mean(region).value for grid in panel]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def packed(total: Ints) -> int | list[list[int]]:
    """Problems of each cell, or the one number that all of them have."""
    return int(total[0, 0]) if (total == total[0, 0]).all() else total.tolist()


def footnotes(report: Report) -> dict[str, str]:
    """What stands under the maps, for the mean of seeds and for each seed."""
    notes = {MEAN: captions.footnote(report.ordered)}
    for seed in report.seeds:
        having = [panel for panel in report.ordered if any(grid.seed == seed for grid in panel)]
        notes[str(seed)] = captions.footnote(captions.chosen(having, seed))
    return notes


def colours(name: str) -> str:
    """256 colours of a map, six hexadecimal digits each: the figures' own."""
    import matplotlib as mpl
    import seaborn as sns

    steps = np.linspace(0, 1, 256)
    chosen = sns.color_palette(name, as_cmap=True)(steps)
    return "".join(mpl.colors.to_hex(colour)[1:] for colour in chosen)


def curves(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What the runs logged on the way, of those that logged anything."""
    return [
        {
            "encoding": run.encoding,
            "seed": run.seed,
            **{name: thinned(run.curves.get(name, ())) for name in CURVES},
        }
        for run in runs
        if run.curves
    ]


def lengths(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The learning of each length, of the encodings that logged it: the mean of the seeds that did,
    at the steps that all of these have. `values` has a row a length, a column a step."""
    told = []
    for name in dict.fromkeys(run.encoding for run in runs if run.by_length):
        of = [run for run in runs if run.encoding == name and run.by_length]
        values = [{length: dict(curve) for length, curve in run.by_length.items()} for run in of]
        digits = sorted(set.intersection(*(set(one) for one in values)))
        steps = sorted(
            set.intersection(*(set(one[length]) for one in values for length in digits))
            if digits
            else ()
        )
        kept = every(steps, MOST_STEPS)
        if kept:
            told.append(
                {
                    "encoding": name,
                    "seeds": [run.seed for run in of],
                    "lengths": digits,
                    "steps": kept,
                    "values": [
                        [
                            rounded(sum(one[length][step] for one in values) / len(values))
                            for step in kept
                        ]
                        for length in digits
                    ],
                }
            )
    return told


def every(items: Sequence[T], most: int) -> list[T]:
    """Every k-th of `items`, at most `most`, and the last.

    >>> every(range(10), 4)
    [0, 3, 6, 9]
    >>> every("abcde", 2)
    ['a', 'd', 'e']
    """
    kept = list(items[:: max(-(-len(items) // most), 1)])
    return kept if not items or kept[-1] == items[-1] else [*kept, items[-1]]


def rounded(value: float) -> float:
    """Four digits: more than a curve shows."""
    return float(f"{value:.4g}")


def thinned(curve: Curve) -> list[tuple[int, float]]:
    """At most MOST_POINTS points and the last; what is not finite is not drawn."""
    found = [(step, value) for step, value in curve if isfinite(value)]
    return [(step, rounded(value)) for step, value in every(found, MOST_POINTS)]
