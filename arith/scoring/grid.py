"""The grid of exact match over operand lengths: counts per cell and their means.

Shapes: N the longest operand scored, n problems of one chunk. Cell (i, j) holds the problems whose
first operand has i digits and whose second has j; it is `array[i - 1, j - 1]` everywhere.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.scoring.limits import check_size
from tape_arith.arith.scoring.regions import Bools, Region, mask

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CONVERGED = 0.99
"""In distribution mean from which a run counts as converged (the protocol)."""
# Shares are rounded to multiples of this before they are added, so that sums are exact and do not
# depend on the order or the size of the chunks. The rounding itself is below 5e-10.
SHARE_UNIT = 2.0**-30


class Mean(NamedTuple):
    """Mean of exact match over the cells of a region, each cell with the same weight."""

    value: float | None
    """Fraction in 0..1; None where a cell of the region is missing or the region is empty."""
    cells: int
    missing: int


@dataclass(eq=False)
class Grid:
    """What one trained run scores: counts per pair of operand lengths, missing cells included."""

    encoding: str
    """Canonical name, options included, without what is added at test time."""
    extrapolation: str | None
    preset: str
    seed: int
    trained_digits: int
    budget: dict[str, Any]
    """What training cost (steps, batch size, ...): equal in everything that is compared."""
    evaluation: dict[str, Any]
    """The problems: task, version, seed, max_digits (N), problems_per_cell, sha256; the split where
    it is not the usual one."""
    exact: Ints
    """int64[N, N]: problems answered exactly."""
    total: Ints
    """int64[N, N]: problems scored; 0 is a missing cell."""
    right_sum: Floats
    """float64[N, N]: sum over problems of the share of right answer tokens."""
    first_wrong_sum: Ints
    """int64[N, N]: sum over wrong answers of the first wrong place, 0 the least significant."""
    blocks_done: int = 0
    """Leading blocks of the evaluation set that are counted: where scoring resumes."""
    scoring: dict[str, Any] = field(default_factory=dict)
    """How it was scored (type, threshold, ...): kept beside the counts, never compared."""
    settings: dict[str, int | float | str] = field(default_factory=dict)
    """What was set in place of the preset's: for people; the budget has a hash that is compared."""
    usual: "Grid | None" = field(default=None, repr=False)
    """Of hard sums: the same run on the usual split, where it is known. Never in the file."""

    @classmethod
    def empty(
        cls,
        encoding: str,
        *,
        extrapolation: str | None = None,
        preset: str,
        seed: int,
        trained_digits: int,
        budget: dict[str, Any],
        evaluation: dict[str, Any],
        scoring: dict[str, Any] | None = None,
        settings: dict[str, int | float | str] | None = None,
    ) -> Self:
        """A grid of which every cell is missing; N is `evaluation["max_digits"]`.

        Errors: UsageError where nothing could be scored on it.
        """
        check_size(evaluation["max_digits"], evaluation["problems_per_cell"], trained_digits)
        size = evaluation["max_digits"]
        return cls(
            encoding,
            extrapolation,
            preset,
            seed,
            trained_digits,
            # As a file gives it back (a tuple becomes a list), so that the two compare equal.
            json.loads(json.dumps(budget)),
            json.loads(json.dumps(evaluation)),
            exact=np.zeros((size, size), dtype=np.int64),
            total=np.zeros((size, size), dtype=np.int64),
            right_sum=np.zeros((size, size), dtype=np.float64),
            first_wrong_sum=np.zeros((size, size), dtype=np.int64),
            scoring={} if scoring is None else scoring,
            settings={} if settings is None else settings,
        )

    @property
    def name(self) -> str:
        """As on the command line: "tape", "tape+yarn"."""
        return self.encoding + (f"+{self.extrapolation}" if self.extrapolation else "")

    @property
    def split(self) -> str:
        """Of the problems: "evaluation", the usual one, or "carry"."""
        return str(self.evaluation.get("split", EVALUATION))

    @property
    def max_digits(self) -> int:
        return len(self.total)

    @property
    def complete(self) -> bool:
        """Whether every problem of the evaluation set is counted."""
        return bool(self.blocks_done == self.evaluation["problems_per_cell"])

    @property
    def accuracy(self) -> Floats:
        """float64[N, N]: exact match per cell, 0..1; nan where missing."""
        return _ratio(self.exact, self.total)

    @property
    def right_share(self) -> Floats:
        """float64[N, N]: mean share of right answer tokens, 0..1; nan where missing."""
        return _ratio(self.right_sum, self.total)

    @property
    def first_wrong(self) -> Floats:
        """float64[N, N]: mean place of the first wrong answer token among wrong answers, 0 the
        least significant; nan where no answer is wrong."""
        return _ratio(self.first_wrong_sum, self.total - self.exact)

    def mask(self, region: Region) -> Bools:
        return mask(region, self.max_digits, self.trained_digits)

    def mean(self, region: Region) -> Mean:
        """The mean over the cells of `region`. A missing cell makes it None: it is never 0."""
        values = self.accuracy[self.mask(region)]
        missing = int(np.isnan(values).sum())
        whole = len(values) > 0 and missing == 0
        return Mean(fsum(values) / len(values) if whole else None, len(values), missing)

    @property
    def converged(self) -> bool | None:
        """Whether the trained lengths were learned; None while cells of them are missing. Hard sums
        do not tell: that is said by the usual ones, None where they are not known."""
        judge = self if self.split == EVALUATION else self.usual
        value = None if judge is None else judge.mean("in_distribution").value
        # The slack is for the last bit of a mean that is 99 % exactly.
        return None if value is None else value >= CONVERGED - 1e-12

    def add(
        self,
        operand_lengths: NDArray[np.integer[Any]],
        exact: Bools,
        right: NDArray[np.integer[Any]],
        answer_tokens: NDArray[np.integer[Any]],
        first_wrong: NDArray[np.integer[Any]],
    ) -> None:
        """Count a chunk of scored problems: int[n, 2], bool[n], and three of int[n].

        `right` of `answer_tokens` are as they should be; `first_wrong` is the place of the first
        one that is not, -1 where the answer is exact. In any order and any chunks the sums come
        out the same to the last bit. `blocks_done` is the caller's to raise.
        """
        size = self.max_digits
        assert operand_lengths.shape == (len(exact), 2)
        assert len(exact) == len(right) == len(answer_tokens) == len(first_wrong)
        if len(exact) == 0:
            return
        assert operand_lengths.min() >= 1 and operand_lengths.max() <= size
        assert np.all((right >= 0) & (right <= answer_tokens) & (answer_tokens > 0))
        assert np.array_equal(exact, right == answer_tokens)
        assert np.array_equal(exact, first_wrong == -1) and first_wrong.min() >= -1
        places = operand_lengths.astype(np.int64) - 1
        cells = places[:, 0] * size + places[:, 1]

        def summed(values: NDArray[Any]) -> Floats:
            flat = np.bincount(cells, weights=values, minlength=size * size)
            return flat.astype(np.float64).reshape(size, size)

        share = np.rint(right / answer_tokens / SHARE_UNIT) * SHARE_UNIT
        self.total += np.bincount(cells, minlength=size * size).reshape(size, size)
        self.exact += summed(exact).astype(np.int64)
        self.right_sum += summed(share)
        self.first_wrong_sum += summed(np.maximum(first_wrong, 0)).astype(np.int64)
        assert self.total.max() <= self.evaluation["problems_per_cell"], "a chunk counted twice"

    @property
    def counted(self) -> bool:
        """Whether every cell holds as many problems as there are blocks: scoring can go on."""
        return bool((self.total == self.blocks_done).all())

    def content(self) -> dict[str, Any]:
        """What the file says, as plain Python: means instead of sums, None instead of nan."""
        return {
            "encoding": self.encoding,
            "extrapolation": self.extrapolation,
            "preset": self.preset,
            **({"settings": self.settings} if self.settings else {}),
            "seed": self.seed,
            "trained_digits": self.trained_digits,
            "budget": self.budget,
            "evaluation": self.evaluation,
            "scoring": self.scoring,
            "blocks_done": self.blocks_done,
            "exact": self.exact.tolist(),
            "total": self.total.tolist(),
            "right_share": _nullable(self.right_share),
            "first_wrong": _nullable(self.first_wrong),
        }


def _ratio(sums: NDArray[Any], counts: Ints) -> Floats:
    result = np.full(counts.shape, np.nan)
    np.divide(sums, counts, out=result, where=counts > 0)
    return result


def _nullable(values: Floats) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]


SOLVED = (0.9, 0.99)
"""Shares of exact answers from which a length counts as solved."""


def by_length(grids: Sequence[Grid]) -> list[float | None]:
    """Exact match by the digits of the longer operand: entry L - 1 is the mean over the 2 L - 1
    cells whose longer operand has L digits, and over the seeds in `grids`; None where one of these
    cells is missing in any of them."""
    accuracy = np.mean([grid.accuracy for grid in grids], axis=0)
    lengths = np.arange(1, len(accuracy) + 1)
    longer = np.maximum.outer(lengths, lengths)
    shells = [accuracy[longer == length] for length in lengths]
    return [None if np.isnan(shell).any() else fsum(shell) / len(shell) for shell in shells]


def solved_to(grids: Sequence[Grid], share: float) -> int | None:
    """The largest L such that each length up to L is solved: of the sums whose longer operand has
    that length, `share` or more are exact, as `by_length` counts. 0 where not even one digit is;
    None where a missing cell leaves it open.

    A length is a mean over cells, not the worst of them: with 100 problems a cell, an encoding that
    solves 99.6 % everywhere has some cell below 99 %, and the more cells the sooner.
    """
    for length, value in enumerate(by_length(grids), start=1):
        if value is None:
            return None
        # The slack is for the last bit of a mean that is the share exactly.
        if value < share - 1e-12:
            return length - 1
    return grids[0].max_digits
