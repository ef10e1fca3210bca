"""Intervals for grids, in closed form (scipy is only the oracle of the tests).

The unit of a claim about an encoding is the training run: Student t over the means of seeds.
What counts problems instead of runs speaks of these runs only, and says so (`Interval.of`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, fsum, lgamma, log1p, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tape_arith.arith.scoring.grid import Floats, Grid
from tape_arith.arith.scoring.regions import Region


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, all fractions in 0..1."""

    mean: float
    low: float
    high: float
    half_width: float
    """What stands after the ±: the longer arm, before it is clipped to 0..1."""
    of: Literal["seeds", "this run only"]
    """Whether it covers new training runs, or only new problems for the same run."""
    count: int
    """How many seeds, or how many problems."""


def wilson(exact: ArrayLike, total: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's score interval of exact/total, elementwise; nan where total is 0.

    All wrong gives a lower end of exactly 0, all right an upper end of exactly 1.
    Source: Wilson 1927, Probable inference, the law of succession, and statistical inference.
    """
    right, n = np.asarray(exact, dtype=np.float64), np.asarray(total, dtype=np.float64)
    z = _z(level)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = right / n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        arm = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = np.where(right == 0, 0.0, np.maximum(centre - arm, 0.0))
    high = np.where(right == n, 1.0, np.minimum(centre + arm, 1.0))
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def student_t(means: Sequence[float], level: float = 0.95) -> Interval | None:
    """Student t over the means of seeds; None for fewer than two: one run has no spread to show.

    The ends are clipped to 0..1; equal means give an interval of width 0. In simulations of runs
    that vary and of the problems they are scored on, it covers 94 to 95 % with 3, 5 or 10 seeds,
    but only 86 to 89 % where the mean is within a few percent of 0 or 1 and runs are spread to one
    side (tests/scoring/test_statistics.py): read an interval that touches an end as too narrow.
    """
    n = len(means)
    if n < 2:
        return None
    mean, variance = mean_and_variance(means)
    half = t_quantile((1 + level) / 2, n - 1) * sqrt(variance / n)
    return Interval(mean, max(mean - half, 0.0), min(mean + half, 1.0), half, "seeds", n)


def mean_and_variance(means: Sequence[float]) -> tuple[float, float]:
    """Of the means of two seeds or more; the variance is that of the population they come from
    (divided by n - 1), and exactly 0 where all are equal, whatever the last bit of their mean."""
    mean = fsum(means) / len(means)
    squares = fsum((value - mean) ** 2 for value in means) if len(set(means)) > 1 else 0.0
    return mean, squares / (len(means) - 1)


def one_run(grid: Grid, region: Region, level: float = 0.95) -> Interval | None:
    """The interval of one run's mean under other problems; None where cells are missing.

    Wilson's interval at the mean over cells, with the number of problems that gives the mean over
    cells its variance (the harmonic one where cells hold unequal numbers). The cells are strata,
    so it is never too narrow; and unlike the sum of their variances, never of width 0.
    """
    mean = grid.mean(region).value
    if mean is None:
        return None
    cells = grid.total[grid.mask(region)]
    n = len(cells) ** 2 / float((1 / cells).sum())
    # All right and all wrong must be recognized, whatever the last bit of the two products.
    low, high = wilson(n if mean == 1 else mean * n, n, level)
    arm = max(mean - float(low), float(high) - mean)
    return Interval(mean, float(low), float(high), arm, "this run only", int(cells.sum()))


def over_seeds(grids: Sequence[Grid], region: Region, level: float = 0.95) -> Interval | None:
    """Mean and interval of the seeds of one encoding: `student_t`, or `one_run` for one seed.

    None where there is no grid, or where any of them misses a cell of the region.
    """
    if len(grids) == 1:
        return one_run(grids[0], region, level)
    values = [grid.mean(region).value for grid in grids]
    known = [value for value in values if value is not None]
    return student_t(known, level) if len(known) == len(values) else None


@lru_cache(maxsize=256)
def t_quantile(probability: float, df: float) -> float:
    """The t below which Student's distribution with `df` > 0 degrees holds `probability`.

    Bisection on the upper tail, to the last bits of a float64.
    """
    if not 0 < probability < 1 or df <= 0:
        raise ValueError(f"no quantile at {probability} with {df} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    tail = 1 - probability
    low, high = 0.0, 1.0
    while t_two_sided(high, df) > 2 * tail:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_two_sided(middle, df) > 2 * tail else (low, middle)
    return high if probability > 0.5 else 0.0


def t_two_sided(t: float, df: float) -> float:
    """The probability that Student's distribution with `df` > 0 degrees, whole or not, gives a
    value at least as far from 0 as `t`."""
    return _incomplete_beta(df, t * t)


def _incomplete_beta(df: float, square: float) -> float:
    """The regularized incomplete beta function I_x(df / 2, 1 / 2) at x = df / (df + square).

    Source: continued fraction of Abramowitz and Stegun 26.5.8, by Lentz's method.
    """
    a, b = df / 2, 0.5
    if square == 0:
        return 1.0
    log_x, log_rest = -log1p(square / df), -log1p(df / square)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log_x + b * log_rest)
    x = exp(log_x)
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, exp(log_rest)) / b


def _fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    return NormalDist().inv_cdf((1 + level) / 2)
