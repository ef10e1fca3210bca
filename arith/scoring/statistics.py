"""Intervals for grids.

The unit of a claim about an encoding is the training run: Student t over the means of seeds.
What counts problems instead of runs speaks of these runs only, and says so (`Interval.of`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

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


def t_quantile(probability: float, df: float) -> float:
    """The t below which Student's distribution with `df` degrees of freedom holds `probability`.

    Raises ValueError if `probability` is not between 0 and 1 or `df` is not positive.
    """
    if not 0 < probability < 1 or df <= 0:
        raise ValueError(f"no quantile at {probability} with {df} degrees of freedom")
    return float(special.stdtrit(df, probability))


def t_two_sided(t: float, df: float) -> float:
    """Two-sided tail: the chance that Student's t lies at least as far from 0 as `t`."""
    return float(special.betainc(df / 2, 0.5, df / (df + t * t)))


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    return float(special.ndtri((1 + level) / 2))
