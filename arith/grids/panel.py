"""A panel: the grids of one encoding, one for each seed, with their means and lengths solved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any, Self

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.axes import (
    Axes,
    Bools,
    Ints,
    Region,
    cell_lengths,
    longest_digits,
    regions,
)
from tape_arith.arith.grids.comparable import check_comparable
from tape_arith.arith.grids.facts import About
from tape_arith.arith.grids.grid import SLACK, Floats, Grid
from tape_arith.arith.grids.statistics import (
    Interval,
    false_discovery,
    one_run,
    student_t,
    two_proportion,
    wilson,
)

SOLVED = (0.9, 0.99, 0.1)
"""Shares of exact answers at or above which a length counts as solved."""
UNTRAINED = {
    "untrained_beyond_digits": "numbers of more than {} digits",
    "untrained_beyond_tokens": "sequences of more than {} tokens",
}
"""Facts of a scoring, and their words: lengths, exceeded in the grid, beyond which a learned table
has rows that were never trained (`PositionalEncoding.trained_reach`)."""
FINAL_ANSWERS = "final_answers"
"""Begins the names of the facts of a scoring about answers after a scratchpad."""


@dataclass(frozen=True, eq=False)
class Panel:
    """The grids of one encoding, sorted by seed; made and checked by `of` and `panels_of`."""

    grids: tuple[Grid, ...]

    @classmethod
    def of(cls, grids: Iterable[Grid]) -> Self:
        """Return the panel of the grids of one encoding.

        Raises UsageError if there is none, a seed occurs twice, or they must not be compared.
        """
        panel = cls(tuple(sorted(grids, key=lambda grid: grid.seed)))
        if not panel.grids:
            raise UsageError("nothing to compare: give at least one scored grid for each encoding")
        if len(set(panel.seeds)) < len(panel.seeds):
            seeds = seed_words(panel.seeds)
            raise UsageError(f"{panel.name} has two grids of one seed among {seeds}")
        check_comparable(panel.grids)
        return panel

    def only(self, seed: int) -> Self:
        """Return the panel of one seed. Raises UsageError if there is none."""
        if seed not in self.seeds:
            raise UsageError(f"{self.name} has no seed {seed}: it has {seed_words(self.seeds)}")
        return type(self)(tuple(grid for grid in self.grids if grid.seed == seed))

    # ---- what all grids share --------------------------------------------------------------

    @property
    def first(self) -> Grid:
        """The grid of the lowest seed; its facts are those of all."""
        return self.grids[0]

    @property
    def name(self) -> str:
        """Name as on the command line: "tape", "tape+yarn"."""
        return self.first.name

    @property
    def about(self) -> About | None:
        """What a run recorded of the encoding; None if none did."""
        return next((grid.about for grid in self.grids if grid.about is not None), None)

    @property
    def encoding(self) -> str:
        """Name without the extrapolation."""
        return self.first.encoding

    @property
    def preset(self) -> str:
        return self.first.preset

    @property
    def task(self) -> str:
        return self.first.evaluation.task

    @property
    def axes(self) -> Axes:
        return self.first.axes

    @property
    def regions(self) -> tuple[Region, ...]:
        return regions(self.axes)

    @property
    def settings(self) -> Mapping[str, int | float | str]:
        """Settings that replace the preset's; a grid without a run's record does not name them."""
        return next((grid.settings for grid in self.grids if grid.settings), {})

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(grid.seed for grid in self.grids)

    # ---- means of regions ------------------------------------------------------------------

    def seed_means(self, region: Region) -> tuple[float, ...]:
        """Return the mean of each seed that is scored; none if the region has no cells."""
        means = (grid.mean(region) for grid in self.grids)
        return tuple(mean for mean in means if mean is not None)

    def interval(self, region: Region) -> Interval | None:
        """Return the mean and its interval: over seeds, or over the problems of a single one.

        Returns None if the region is empty or a seed is not scored.
        """
        means = self.seed_means(region)
        if len(means) < len(self.grids):
            return None
        problems = int(self.total[self.first.mask(region)].sum())
        return student_t(means) or one_run(means[0], problems)

    def mean(self, region: Region) -> float | None:
        """Return the mean over seeds, 0..1; None as `interval`."""
        interval = self.interval(region)
        return None if interval is None else interval.mean

    @property
    def convergence(self) -> str | None:
        """Return "not converged" with the number of seeds, or None if all seeds converged.

        The usual problems decide, also for a grid of hard ones; without them it is unknown. A model
        that was not trained here has nothing to converge to.
        """
        if not self.first.budget.steps:
            return None
        states = [grid.converged for grid in self.grids]
        failed = sum(state is False for state in states)
        if failed:
            return "not converged" if failed == len(states) else f"{failed} not converged"
        return "convergence unknown" if None in states else None

    @property
    def ranked(self) -> bool:
        """Tell whether the encoding is ranked by its mean out of distribution."""
        return self.convergence is None and self.interval("out_of_distribution") is not None

    # ---- cells and lengths -----------------------------------------------------------------

    @property
    def problems_a_cell(self) -> int:
        """Problems that are scored in each cell, of all seeds together."""
        return sum(grid.blocks_done for grid in self.grids)

    @property
    def exact(self) -> Ints:
        """int64 of the grid's shape: problems answered exactly, of all seeds together."""
        return np.sum([grid.exact for grid in self.grids], axis=0)

    @property
    def total(self) -> Ints:
        """int64 of the grid's shape: problems scored, of all seeds together."""
        return np.sum([grid.total for grid in self.grids], axis=0)

    @property
    def cell_means(self) -> Floats:
        """float64 of the grid's shape: the mean of exact match over seeds, for each cell."""
        return np.mean([grid.accuracy for grid in self.grids], axis=0)

    def cell_intervals(self) -> tuple[Floats, Floats]:
        """Return the ends of each cell's 95 % interval, of the grid's shape, clipped to 0..1.

        Student t over seeds; for one seed Wilson's over problems, as in `interval`.
        """
        if len(self.grids) == 1:
            return wilson(self.exact, self.total)
        cells = zip(*(grid.accuracy.ravel() for grid in self.grids), strict=True)
        # None would be the interval of fewer than two seeds.
        ends = [(each.low, each.high) for each in map(student_t, cells) if each is not None]
        low, high = np.array(ends).T.reshape(2, *self.first.total.shape)
        return low, high

    def seeds_by_length(self) -> dict[int, tuple[float, ...]]:
        """Return exact match by the digits of the longest operand, for each seed.

        That of L is the mean over all cells whose longest operand has L digits; for two operands
        these are 2 L - 1 cells. Of lists only those count that have no more numbers than trained.
        """
        return {
            length: tuple(fsum(grid.accuracy[shell]) / shell.sum() for grid in self.grids)
            for length, shell in self._shells.items()
        }

    def length_intervals(self) -> dict[int, tuple[float, float]]:
        """Return the ends of each 95 % interval of `by_length`, clipped to 0..1.

        Student t over seeds; of one seed over its problems, as in `interval`.
        """
        ends: dict[int, tuple[float, float]] = {}
        for length, means in self.seeds_by_length().items():
            problems = int(self.total[self._shells[length]].sum())
            interval = student_t(means) or one_run(means[0], problems)
            ends[length] = interval.low, interval.high
        return ends

    @cached_property
    def _shells(self) -> dict[int, Bools]:
        """The cells whose longest operand has each number of digits."""
        lengths = cell_lengths(self.axes)
        longest = longest_digits(self.axes, lengths)
        limits = [axis.tested if axis.counts == "digits" else axis.trained for axis in self.axes]
        inside = (lengths <= np.array(limits)).all(axis=-1)
        return {n: inside & (longest == n) for n in np.unique(longest).tolist()}

    def by_length(self) -> dict[int, float]:
        """Return the means over seeds of `seeds_by_length`."""
        return {n: fsum(means) / len(means) for n, means in self.seeds_by_length().items()}

    @property
    def right_tokens(self) -> tuple[float, ...]:
        """The share of right answer tokens out of distribution of each seed, cells weighing alike.

        It is of a teacher-forced pass: each token after the right ones before it.
        """
        outside = self.first.mask("out_of_distribution")
        shares = [(grid.right_sum / grid.total)[outside] for grid in self.grids]
        return tuple(fsum(cells) / len(cells) for cells in shares if len(cells))

    def solved_to(self, share: float) -> int:
        """Return the largest L such that each length up to L has `share` or more in `by_length`.

        Returns 0 if the shortest length has less. A length's value is the mean over its cells, not
        the minimum: with 100 problems a cell, an encoding that solves 99.6 % everywhere has some
        cell below 99 %, and the more cells, the more likely.
        """
        solved = 0
        for length, value in self.by_length().items():
            if not value >= share - SLACK:  # nor is one that is not scored
                break
            solved = length
        return solved

    # ---- answers after a scratchpad --------------------------------------------------------

    @property
    def final_answers(self) -> tuple[float, ...]:
        """Return the share of right final answers out of distribution of each seed; () if one is
        unknown."""
        shares = self._scored(f"{FINAL_ANSWERS}_out_of_distribution")
        return () if None in shares else tuple(map(float, shares))

    @property
    def untrained(self) -> str:
        """Return in words the problems with untrained indices; "" if none is known."""
        limits = {fact: [n for n in self._scored(fact) if n is not None] for fact in UNTRAINED}
        return " and ".join(
            words.format(int(min(limits[fact])))
            for fact, words in UNTRAINED.items()
            if limits[fact]
        )

    @property
    def final_answers_of(self) -> int:
        """Return the number of problems behind each of `final_answers`; 0 if one is unknown."""
        return min(
            int(count or 0) for count in self._scored(f"{FINAL_ANSWERS}_out_of_distribution_of")
        )

    def _scored(self, fact: str) -> list[Any]:
        return [grid.scoring.get(fact) for grid in self.grids]


def panels_of(grids: Iterable[Grid], names: Iterable[str] = ()) -> list[Panel]:
    """Return a panel for each encoding: first those of `names`, in that order, then others.

    Raises UsageError if there is no grid, an encoding has two of one seed, or they must not be
    compared.
    """
    by_name: dict[str, list[Grid]] = {name: [] for name in names}
    for grid in grids:
        by_name.setdefault(grid.name, []).append(grid)
    panels = [Panel.of(members) for members in by_name.values() if members] or [Panel.of(())]
    check_comparable([panel.first for panel in panels])
    return panels


def significant_cells(one: Panel, other: Panel) -> Bools:
    """Return bool of the grid's shape: the cells in which two encodings differ significantly.

    The false discovery rate is 5 %. Problems are pooled over seeds and taken as independent. Both
    encodings answered the same problems, but a grid holds only counts, so they cannot be paired.
    """
    return false_discovery(two_proportion(one.exact, one.total, other.exact, other.total))


def seed_words(seeds: Sequence[int]) -> str:
    """Return "seed 3" or "seeds 0, 1"."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
