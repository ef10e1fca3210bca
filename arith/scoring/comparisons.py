"""Whether two encodings differ.

`welch` with `holm` speaks of encodings: its unit is the training run. `two_proportion` with
`false_discovery` counts problems, cell by cell, and so speaks of these runs only.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tape_arith.arith.scoring.grid import Floats
from tape_arith.arith.scoring.regions import Bools
from tape_arith.arith.scoring.statistics import mean_and_variance, t_two_sided


class Welch(NamedTuple):
    """A two-sided test of two encodings' means over seeds."""

    difference: float
    """First minus second, a fraction in -1..1."""
    t: float
    df: float
    """Degrees of freedom of Welch and Satterthwaite: between those of the smaller set and both."""
    p: float


def welch(one: Sequence[float], other: Sequence[float]) -> Welch | None:
    """Welch's t test of the means of the seeds of two encodings, which may vary differently.

    The seeds of the two must be different training runs. None where nothing can be said: with
    fewer than two seeds in either there is no variance to know, and where the seeds of both are
    equal among themselves (all at 0, all at 1) it is 0, and any difference would be certain.
    Source: Welch 1947, The generalization of Student's problem when several different population
    variances are involved.
    """
    if min(len(one), len(other)) < 2:
        return None
    (mean_a, variance_a), (mean_b, variance_b) = mean_and_variance(one), mean_and_variance(other)
    a, b = variance_a / len(one), variance_b / len(other)
    if a + b == 0:
        return None
    difference = mean_a - mean_b
    t = difference / sqrt(a + b)
    # As shares, so that the squares of tiny variances do not vanish.
    share_a, share_b = a / (a + b), b / (a + b)
    df = 1 / (share_a**2 / (len(one) - 1) + share_b**2 / (len(other) - 1))
    return Welch(difference, t, df, t_two_sided(t, df))


def holm(p: Sequence[float]) -> list[float]:
    """Each p adjusted for all of them: those at or below a level are significant at that level,
    and the chance that any of them is so by mistake is at most the level.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.

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
    """Two-sided p of the pooled two-proportion z test, elementwise; nan where a total is 0.

    The same as Pearson's chi-squared of the 2x2 table without correction. Where both are all
    right, or both all wrong, nothing differs: p is 1.
    """
    right_a, n_a, right_b, n_b = (
        np.asarray(x, dtype=np.float64) for x in (exact_a, total_a, exact_b, total_b)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (right_a + right_b) / (n_a + n_b)
        variance = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
        z = np.abs(right_a / n_a - right_b / n_b) / np.sqrt(variance)
    same = (right_a + right_b == 0) | (right_a + right_b == n_a + n_b)
    z = np.where(same, 0.0, z)
    return np.where((n_a > 0) & (n_b > 0), special.erfc(z / sqrt(2)), np.nan)


def false_discovery(p: NDArray[Any], rate: float = 0.05) -> Bools:
    """Which of the tests are significant at a false discovery rate: bool of p's shape.

    nan is no test: it is never significant and does not count among them.
    Source: Benjamini and Hochberg 1995, Controlling the false discovery rate.
    """
    tested = np.sort(p[~np.isnan(p)])
    ranks = np.arange(1, len(tested) + 1)
    passed = tested[tested <= rate * ranks / max(len(tested), 1)]
    if len(passed) == 0:
        return np.zeros(p.shape, dtype=np.bool_)
    significant: Bools = p <= passed[-1]  # nan compares as False
    return significant
