"""Intervals, tests and lengths solved.

The unit of a claim about an encoding is the training run: Student t over the means of seeds, Welch
with Holm between encodings. What counts problems instead of runs (`wilson`, `one_run`,
`two_proportion` with `false_discovery`) speaks of these runs only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats would take half a second to import

from tape_arith.arith.scoring.grid import SLACK, Bools, Floats, Grid, Region

SOLVED = (0.9, 0.99)
"""Shares of exact answers from which a length counts as solved."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, all fractions in 0..1."""

    mean: float
    low: float
    high: float
    half_width: float
    """The number after the ±: the longer arm, before it is clipped to 0..1."""
    of: Literal["seeds", "this run only"]
    """Coverage: new training runs, or only new problems for the same run."""
    count: int
    """Number of seeds, or of problems."""


class Welch(NamedTuple):
    """A two-sided test of two encodings' means over seeds."""

    difference: float
    """First minus second, a fraction in -1..1."""
    t: float
    df: float
    """Degrees of freedom of Welch and Satterthwaite: between those of the smaller set and both."""
    p: float


def wilson(exact: ArrayLike, total: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of exact/total, elementwise; nan where total is 0.

    All wrong gives a lower end of exactly 0, all right an upper end of exactly 1.
    Source: Wilson 1927, Probable inference, the law of succession, and statistical inference.
    """
    right, n = np.asarray(exact, dtype=np.float64), np.asarray(total, dtype=np.float64)
    z = special.ndtri((1 + level) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = right / n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        arm = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = np.where(right == 0, 0.0, np.maximum(centre - arm, 0.0))
    high = np.where(right == n, 1.0, np.minimum(centre + arm, 1.0))
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def student_t(means: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return Student's t interval over the means of seeds; None for fewer than two.

    The ends are clipped to 0..1; equal means give an interval of width 0. In simulations of runs
    that vary and of the problems they are scored on, it covers 94 to 95 % with 3, 5 or 10 seeds,
    but only 86 to 89 % where the mean is within a few percent of 0 or 1 and runs are spread to one
    side (tests/scoring/test_statistics.py): read an interval that touches an end as too narrow.
    """
    n = len(means)
    if n < 2:
        return None
    mean, variance = _mean_and_variance(means)
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * sqrt(variance / n)
    return Interval(mean, max(mean - half, 0.0), min(mean + half, 1.0), half, "seeds", n)


def one_run(grid: Grid, region: Region, level: float = 0.95) -> Interval | None:
    """Return the interval of one run's mean under other problems; None as `Grid.mean`.

    Wilson's interval at the mean over cells. The cells are strata, so it is never too narrow; and
    unlike the sum of their variances, never of width 0.
    """
    mean = grid.mean(region)
    if mean is None:
        return None
    n = int(grid.total[grid.mask(region)].sum())
    # All right and all wrong must be recognized, whatever the last bit of the two products.
    low, high = map(float, wilson(n if mean == 1 else mean * n, n, level))
    arm = max(mean - low, high - mean)
    return Interval(mean, low, high, arm, "this run only", n)


def over_seeds(grids: Sequence[Grid], region: Region, level: float = 0.95) -> Interval | None:
    """Return the mean and interval of the seeds of one encoding: `one_run` for a single seed.

    None if there is no grid, or if the region is empty.
    """
    if len(grids) == 1:
        return one_run(grids[0], region, level)
    means = [grid.mean(region) for grid in grids]
    return student_t([mean for mean in means if mean is not None], level)


def welch(one: Sequence[float], other: Sequence[float]) -> Welch | None:
    """Return Welch's t test of the means of seeds, which may vary differently in the two.

    The seeds of the two must be different training runs. None if nothing can be said: fewer than
    two seeds have no variance, and if the seeds of both are equal among themselves (all at 0, all
    at 1) it is 0, and any difference would be certain.
    Source: Welch 1947, The generalization of Student's problem when several different population
    variances are involved.
    """
    if min(len(one), len(other)) < 2:
        return None
    (mean_a, variance_a), (mean_b, variance_b) = _mean_and_variance(one), _mean_and_variance(other)
    a, b = variance_a / len(one), variance_b / len(other)
    if a + b == 0:
        return None
    t = (mean_a - mean_b) / sqrt(a + b)
    # As shares, so that the squares of tiny variances do not vanish.
    share_a, share_b = a / (a + b), b / (a + b)
    df = 1 / (share_a**2 / (len(one) - 1) + share_b**2 / (len(other) - 1))
    return Welch(mean_a - mean_b, t, df, 2 * float(special.stdtr(df, -abs(t))))


def holm(p: Sequence[float]) -> list[float]:
    """Return each p adjusted for all of them.

    Those at or below a level are significant, and the chance that any of them is so by mistake is
    at most the level. Source: Holm 1979, A simple sequentially rejective multiple test procedure.

    >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.minimum(scaled, 1.0))
    return list(map(float, adjusted))


def two_proportion(
    exact_a: ArrayLike, total_a: ArrayLike, exact_b: ArrayLike, total_b: ArrayLike
) -> Floats:
    """Return two-sided p of the pooled two-proportion z test, elementwise.

    The same as Pearson's chi-squared of the 2x2 table without correction. All right in both and all
    wrong in both give 1.
    """
    right_a, n_a, right_b, n_b = (
        np.asarray(x, dtype=np.float64) for x in (exact_a, total_a, exact_b, total_b)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (right_a + right_b) / (n_a + n_b)
        variance = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
        z = np.abs(right_a / n_a - right_b / n_b) / np.sqrt(variance)
    z = np.where((pooled == 0) | (pooled == 1), 0.0, z)
    return np.asarray(special.erfc(z / sqrt(2)))


def false_discovery(p: NDArray[Any], rate: float = 0.05) -> Bools:
    """Return the tests that are significant at a false discovery rate: bool of p's shape.

    Source: Benjamini and Hochberg 1995, Controlling the false discovery rate.
    """
    tested = np.sort(p, axis=None)
    passed = tested[tested <= rate * np.arange(1, len(tested) + 1) / max(len(tested), 1)]
    significant: Bools = p <= passed.max(initial=-1.0)
    return significant


def by_length(grids: Sequence[Grid]) -> list[float]:
    """Return exact match by the digits of the longer operand, the mean over the seeds in `grids`.

    Entry L - 1 is over the 2 L - 1 cells whose longer operand has L digits.
    """
    accuracy = np.mean([grid.accuracy for grid in grids], axis=0)
    lengths = np.arange(1, len(accuracy) + 1)
    longer = np.maximum.outer(lengths, lengths)
    shells = [accuracy[longer == length] for length in lengths]
    return [fsum(shell) / len(shell) for shell in shells]


def solved_to(grids: Sequence[Grid], share: float) -> int:
    """Return the largest L such that each length up to L has `share` or more in `by_length`.

    0 if not even one digit has. A length is a mean over cells, not the worst of them: with 100
    problems a cell, an encoding that solves 99.6 % everywhere has some cell below 99 %, and the
    more cells the sooner.
    """
    for length, value in enumerate(by_length(grids), start=1):
        if value < share - SLACK:
            return length - 1
    return grids[0].max_digits


def _mean_and_variance(means: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample variance of two or more; equal ones have exactly 0."""
    mean = fsum(means) / len(means)
    squares = fsum((value - mean) ** 2 for value in means) if len(set(means)) > 1 else 0.0
    return mean, squares / (len(means) - 1)
