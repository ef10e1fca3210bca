"""Intervals and tests against scipy, loops, simulations, and the ends of their ranges."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tape_arith.arith.grids.grid import Floats
from tape_arith.arith.grids.statistics import (
    false_discovery,
    holm,
    student_t,
    two_proportion,
    welch,
    wilson,
)

shares = st.lists(st.integers(0, 20_000).map(lambda right: right / 20_000), min_size=2, max_size=6)


class TestWilson:
    @pytest.mark.parametrize("total", [1, 7, 100, 12_500])
    def test_against_scipy(self, total: int) -> None:
        right = np.unique(np.linspace(0, total, 9).astype(int))
        for level in (0.5, 0.95, 0.999):
            for k, low, high in zip(right, *wilson(right, total, level), strict=True):
                oracle = stats.binomtest(int(k), total).proportion_ci(level, "wilson")
                assert (low, high) == pytest.approx((oracle.low, oracle.high), abs=1e-13)

    def test_ends(self) -> None:
        low, high = wilson([0, 100, 0], [100, 100, 0])
        assert low[0] == 0.0 and 0 < high[0] < 0.05
        assert high[1] == 1.0 and 0.95 < low[1] < 1
        assert np.isnan([low[2], high[2]]).all()


class TestStudent:
    @pytest.mark.parametrize("means", [[0.1, 0.4], [0.2, 0.25, 0.31], [0.5, 0.52, 0.4, 0.99]])
    @pytest.mark.parametrize("level", [0.5, 0.95])
    def test_against_scipy(self, means: list[float], level: float) -> None:
        interval = student_t(means, level)
        assert interval is not None and interval.of == "seeds" and interval.count == len(means)
        mean, half = interval.mean, interval.half_width
        low, high = stats.t.interval(level, len(means) - 1, np.mean(means), stats.sem(means))
        assert (mean - half, mean + half) == pytest.approx((low, high), rel=1e-9)
        assert (interval.low, interval.high) == pytest.approx((max(low, 0), min(high, 1)))

    def test_ends(self) -> None:
        assert student_t([0.5]) is None and student_t([]) is None
        for value in (0.0, 0.1, 0.7, 1.0):
            interval = student_t([value] * 3)
            assert interval is not None and interval.half_width == 0.0
            assert interval.low == interval.high == pytest.approx(value)


LONGER = np.maximum.outer(np.arange(1, 17), np.arange(1, 17))
LONGER = LONGER[LONGER > 8]
"""Longer operand of each cell out of distribution in a grid to 16 digits, trained to 8."""


def solved_shares(reach: Any, midpoint: float) -> Any:
    """float64[..., 192]: how probably runs of `reach` (digits beyond `midpoint`) solve a problem
    of each cell; it falls along the longer operand, as in the grids of results/mini."""
    return 1 / (1 + np.exp(1.5 * (LONGER - midpoint - np.asarray(reach)[..., None])))


def simulated(midpoint: float, spread: float, seeds: int) -> tuple[float, Floats]:
    """The true mean over runs, and float64[2000, seeds] of measured means.

    Each run's reach is drawn from a normal distribution of standard deviation `spread` (the
    variance between seeds), then each of its 192 cells from the binomial of 100 problems (the
    noise of problems). The truth is the mean of the cells over all reaches, by Gauss-Hermite.
    """
    draw = np.random.default_rng([seeds, round(1000 * midpoint), round(1000 * spread)])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    truth = weights / weights.sum() @ solved_shares(spread * nodes, midpoint).mean(axis=-1)
    reach = draw.normal(0, spread, (2000, seeds))
    parts = [draw.binomial(100, solved_shares(r, midpoint)).mean(axis=-1) for r in reach.T]
    return float(truth), np.stack(parts, axis=1) / 100


def share_covered(truth: float, means: Floats) -> float:
    intervals = [student_t(row) for row in means.tolist()]
    return float(np.mean([i is not None and i.low <= truth <= i.high for i in intervals]))


class TestOverSeedsCovers:
    """2,000 leaderboards each: a coverage of 95 % is estimated to within 0.5 % (one sigma)."""

    @pytest.mark.parametrize("seeds", [3, 10])
    @pytest.mark.parametrize(
        ("midpoint", "spread", "mean"),
        [
            (10.0, 0.5, 0.152),  # as nope and rand-rope at mini
            (12.0, 1.0, 0.369),
            (10.0, 0.0, 0.149),  # nothing but the noise of problems
        ],
    )
    def test_runs_vary(self, seeds: int, midpoint: float, spread: float, mean: float) -> None:
        truth, means = simulated(midpoint, spread, seeds)
        assert truth == pytest.approx(mean, abs=0.002) == pytest.approx(means.mean(), abs=0.006)
        assert 0.93 <= share_covered(truth, means) <= 0.97

    def test_near_an_end_of_the_scale_it_covers_less(self) -> None:
        """If most runs are at 0 and few above, three seeds do not show the few: no interval over
        so few can. The docstring of `student_t` says so."""
        truth, means = simulated(8.0, 1.0, 3)
        assert 0.03 <= truth <= 0.04 and 0.83 <= share_covered(truth, means) <= 0.92


class TestWelch:
    @pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's, where one does not vary
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ([0.17, 0.20, 0.21], [0.02, 0.01, 0.04]),
            ([0.5, 0.7], [0.1, 0.2, 0.3, 0.4, 0.5]),
            ([0.1, 0.1, 0.1], [0.0, 0.02, 0.01]),  # no variance in one of them
            ([1.0, 0.99, 1.0], [0.0, 0.0, 0.01]),
            ([0.3, 0.4, 0.5], [0.3, 0.4, 0.5]),
        ],
    )
    def test_against_scipy(self, one: list[float], other: list[float]) -> None:
        oracle = stats.ttest_ind(one, other, equal_var=False)
        test, reverse = welch(one, other), welch(other, one)
        assert test is not None and reverse is not None
        assert test.difference == pytest.approx(np.mean(one) - np.mean(other), abs=1e-15)
        assert (test.t, test.df) == pytest.approx((oracle.statistic, oracle.df), rel=1e-9)
        assert test.p == pytest.approx(oracle.pvalue, rel=1e-9)
        assert test.t == -reverse.t and test.p == pytest.approx(reverse.p, rel=1e-9)

    @settings(max_examples=100, deadline=None)
    @given(shares, shares)
    def test_degrees_of_freedom(self, one: list[float], other: list[float]) -> None:
        test = welch(one, other)
        if test is None:
            assert len(set(one)) == len(set(other)) == 1
            return
        assert 0 <= test.p <= 1
        least, most = min(len(one), len(other)) - 1, len(one) + len(other) - 2
        assert least - 1e-9 <= test.df <= most + 1e-9

    def test_nothing_can_be_said(self) -> None:
        for one, other in (
            ([0.5], [0.1, 0.2, 0.3]),  # one seed
            ([], [0.1, 0.2]),
            ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),  # no variance: not certainty, but no knowledge
            ([0.1, 0.1, 0.1], [0.3, 0.3]),
        ):
            assert welch(one, other) is None and welch(other, one) is None


def rejected(p: Sequence[float], level: float) -> list[bool]:
    """Holm word for word: from the smallest on, against level / (tests left), until one fails."""
    result = [False] * len(p)
    for step, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[place] > level / (len(p) - step):
            break
        result[place] = True
    return result


class TestHolm:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, 64).map(lambda k: k / 1024) | st.floats(0, 1)))
    def test_against_the_steps(self, p: list[float]) -> None:
        level = 1 / 16  # with the p above exact, so that ties with the level are ties
        adjusted = holm(p)
        for value, expected in zip(adjusted, rejected(p, level), strict=True):
            assert abs(value - level) < 1e-9 or (value <= level) == expected
        for raw, value in zip(p, adjusted, strict=True):
            assert raw <= value <= min(1.0, len(p) * raw)  # between p and Bonferroni
        order = sorted(range(len(p)), key=p.__getitem__)
        assert all(adjusted[a] <= adjusted[b] for a, b in pairwise(order))


def test_two_proportion() -> None:
    draw = np.random.default_rng(1)
    for _ in range(30):
        n_a, n_b = draw.integers(5, 300, 2)
        a, b = draw.integers(1, n_a), draw.integers(0, n_b)
        table = [[a, n_a - a], [b, n_b - b]]
        oracle = stats.chi2_contingency(table, correction=False).pvalue
        assert two_proportion(a, n_a, b, n_b) == pytest.approx(oracle, rel=1e-9, abs=1e-15)
    p = two_proportion([0, 100, 0, 100], 100, [0, 100, 100, 50], 100)
    assert p[0] == p[1] == 1.0 and p[2] < 1e-20 and p[3] < 1e-10


class TestFalseDiscovery:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.floats(0, 1) | st.floats(0, 0.02)))
    def test_against_a_loop(self, p: list[float]) -> None:
        """The largest k with p_(k) <= k / m * rate."""
        tests, cut = sorted(p), -1.0
        for k, value in enumerate(tests, start=1):
            if value <= 0.05 * k / len(tests):
                cut = value
        assert false_discovery(np.array(p)).tolist() == [value <= cut for value in p]

    def test_against_scipy(self) -> None:
        p = np.random.default_rng(0).beta(0.3, 2, (20, 20))
        for rate in (0.2, 0.05, 0.01):
            oracle = stats.false_discovery_control(p.ravel()).reshape(p.shape) <= rate
            assert np.array_equal(false_discovery(p, rate), oracle)
