"""Intervals and tests of means and of counts.

A claim about an encoding rests on training runs: Student's t over the means of seeds, Welch's test
with Holm's correction between encodings. Functions that count problems instead (`wilson`,
`one_run`, `two_proportion` with `false_discovery`) support claims about the given runs only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats would take half a second to import

from tape_arith.arith.grids.axes import Bools
from tape_arith.arith.grids.grid import Floats


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, all fractions in 0..1."""

    mean: float
    low: float
    high: float
    half_width: float
    """The number after the ±: the longer arm, before the ends are clipped to 0..1."""
    of: Literal["seeds", "problems"]
    """The scope of the interval: new training runs, or only new problems for the same run."""
    count: int
    """Number of seeds, or of problems."""


class Welch(NamedTuple):
    """A two-sided test of two encodings' means over seeds."""

    difference: float
    """First minus second, a fraction in -1..1."""
    t: float
    df: float
    """Welch-Satterthwaite degrees of freedom: from min(n_1, n_2) - 1 to n_1 + n_2 - 2."""
    p: float
    half_width: float
    """Half of the 95 % interval of the difference."""


class Paired(NamedTuple):
    """The mean difference of two encodings over the seeds that both have."""

    difference: float
    """First minus second, a fraction in -1..1."""
    half_width: float
    """Half of its 95 % interval: Student's t over the differences."""
    seeds: int
    """Number of seeds that both have."""


def wilson(exact: ArrayLike, total: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of exact/total, elementwise; nan where total is 0.

    The lower end is exactly 0 if all are wrong, the upper end exactly 1 if all are right.
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

    The ends are clipped to 0..1; equal means give an interval of width 0. In simulations
    that draw both runs and problems, its coverage is 94 to 95 % with 3, 5 or 10 seeds, but only 86
    to 89 % where the mean is within a few percent of 0 or 1 and the runs are skewed
    (tests/grids/test_statistics.py): an interval that touches 0 or 1 is probably too narrow.
    """
    n = len(means)
    if n < 2:
        return None
    mean, variance = _mean_and_variance(means)
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * sqrt(variance / n)
    return Interval(mean, max(mean - half, 0.0), min(mean + half, 1.0), half, "seeds", n)


def one_run(mean: float, count: int) -> Interval:
    """Return the interval of one run's mean over new problems, from `count` problems.

    It is Wilson's interval at the mean over cells. It is never too narrow, because the cells are
    strata, and never has width 0, as one from the sum of their variances can.
    """
    # `wilson` must recognize all right and all wrong, whatever the rounding of mean * count.
    low, high = map(float, wilson(count if mean == 1 else mean * count, count))
    arm = max(mean - low, high - mean)
    return Interval(mean, low, high, arm, "problems", count)


def welch(one: Sequence[float], other: Sequence[float]) -> Welch | None:
    """Return Welch's t test between two encodings, given the means of their seeds.

    Their variances may differ; no training run may be in both. Returns None if nothing can be said:
    fewer than two seeds have no variance, and if neither encoding varies over its seeds (all at 0,
    all at 1), the variance is 0 and any difference would seem certain.
    Source: Welch 1947, The generalization of Student's problem when several different population
    variances are involved.
    """
    if min(len(one), len(other)) < 2:
        return None
    (mean_a, variance_a), (mean_b, variance_b) = _mean_and_variance(one), _mean_and_variance(other)
    a, b = variance_a / len(one), variance_b / len(other)
    if a + b == 0:
        return None
    error = sqrt(a + b)
    t = (mean_a - mean_b) / error
    # Dividing by the sum keeps the squares of tiny variances from underflow.
    share_a, share_b = a / (a + b), b / (a + b)
    df = 1 / (share_a**2 / (len(one) - 1) + share_b**2 / (len(other) - 1))
    half_width = float(special.stdtrit(df, 0.975)) * error
    return Welch(mean_a - mean_b, t, df, 2 * float(special.stdtr(df, -abs(t))), half_width)


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Paired | None:
    """Compare two encodings seed by seed, given their means by seed.

    Runs of one seed share data and order, so differences may vary less than runs do. Returns None
    for fewer than two common seeds, or if all differences are equal.
    """
    differences = [mean - other[seed] for seed, mean in one.items() if seed in other]
    interval = student_t(differences) if len(set(differences)) > 1 else None
    if interval is None:
        return None
    return Paired(interval.mean, interval.half_width, interval.count)


def detectable(deviation: float, seeds: int, power: float = 0.8, level: float = 0.05) -> float:
    """Return the difference that a two-sided t test finds with `power`, with `seeds` runs each.

    deviation  standard deviation over the seeds of either encoding

    >>> [round(detectable(2.0, seeds), 1) for seeds in (3, 5, 10)]
    [6.1, 4.0, 2.6]
    """
    df, critical = 2 * (seeds - 1), float(special.stdtrit(2 * (seeds - 1), 1 - level / 2))
    # The noncentrality at which t falls short of `critical` with probability 1 - power; the other
    # tail is below 1e-4 there.
    noncentrality = float(special.nctdtrinc(df, 1 - power, critical))
    return noncentrality * deviation * sqrt(2 / seeds)


def holm(p: Sequence[float]) -> list[float]:
    """Return the p values, each adjusted for the number of tests.

    If all at or below a level are called significant, the chance that any is so by mistake is at
    most the level. Source: Holm 1979, A simple sequentially rejective multiple test procedure.

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

    It equals Pearson's chi-squared test of the 2x2 table without correction. p is 1 if all are
    right in both or all are wrong in both.
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
    """Return which tests are significant at a false discovery rate: bool of p's shape.

    Source: Benjamini and Hochberg 1995, Controlling the false discovery rate.
    """
    tested = np.sort(p, axis=None)
    passed = tested[tested <= rate * np.arange(1, len(tested) + 1) / max(len(tested), 1)]
    significant: Bools = p <= passed.max(initial=-1.0)
    return significant


def _mean_and_variance(means: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample variance of two or more values. Equal values have exactly 0."""
    mean = fsum(means) / len(means)
    squares = fsum((value - mean) ** 2 for value in means) if len(set(means)) > 1 else 0.0
    return mean, squares / (len(means) - 1)
