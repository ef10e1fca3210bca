"""Intervals and tests against scipy, loops, simulations, and the ends of their ranges."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tape_arith.arith.grids.statistics import (
    detectable,
    false_discovery,
    holm,
    paired,
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
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


def solved_shares(reach: Any) -> Any:
    """float64[..., 192]: how probably runs that reach so many digits solve a problem of each cell;
    it falls along the longer operand, as in the grids of results/mini."""
    return 1 / (1 + np.exp(1.5 * (LONGER - np.asarray(reach)[..., None])))


@pytest.mark.parametrize(
    ("reach", "spread", "seeds", "mean", "least", "most"),
    [
        (10.0, 0.5, 3, 0.152, 0.93, 0.97),  # as nope and rand-rope at mini
        (12.0, 1.0, 10, 0.369, 0.93, 0.97),
        (10.0, 0.0, 10, 0.149, 0.93, 0.97),  # nothing but the noise of problems
        # If most runs are at 0 and few above, three seeds do not show the few: no interval over so
        # few can. The docstring of `student_t` says so.
        (8.0, 1.0, 3, 0.035, 0.83, 0.92),
    ],
)
def test_over_seeds_covers(
    reach: float, spread: float, seeds: int, mean: float, least: float, most: float
) -> None:
    """Of 1,000 leaderboards: a coverage of 95 % is estimated to within 0.7 % (one sigma).

    Each run's reach is drawn from a normal distribution of standard deviation `spread` (the
    variance between seeds), then each of its 192 cells from the binomial of 100 problems (the
    noise of problems). The truth is the mean of the cells over all reaches, by Gauss-Hermite.
    """
    draw = np.random.default_rng([seeds, round(1000 * reach), round(1000 * spread)])
    truth = WEIGHTS / WEIGHTS.sum() @ solved_shares(reach + spread * NODES).mean(axis=-1)
    runs = draw.normal(reach, spread, (seeds, 1000))
    parts = [draw.binomial(100, solved_shares(run)).mean(axis=-1) / 100 for run in runs]
    assert truth == pytest.approx(mean, abs=0.005) == pytest.approx(np.mean(parts), abs=0.006)
    intervals = [student_t(means) for means in np.stack(parts, axis=1).tolist()]
    covered = np.mean([i is not None and i.low <= truth <= i.high for i in intervals])
    assert least <= covered <= most


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
        low, high = oracle.confidence_interval()
        assert test.half_width == pytest.approx((high - low) / 2, rel=1e-9)
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


def test_what_seeds_can_show() -> None:
    """The smallest difference that scipy's noncentral t finds in 80 of 100 cases."""
    for seeds, level, power in ((3, 0.05, 0.8), (5, 0.05, 0.8), (10, 0.01, 0.9)):
        df, critical = 2 * (seeds - 1), stats.t.ppf(1 - level / 2, 2 * (seeds - 1))
        shift = detectable(0.02, seeds, power, level) / (0.02 * np.sqrt(2 / seeds))
        found = stats.nct.sf(critical, df, shift) + stats.nct.cdf(-critical, df, shift)
        assert found == pytest.approx(power, abs=1e-4)


def test_pairs_are_the_common_seeds() -> None:
    one, other = {0: 0.3, 1: 0.5, 2: 0.6, 7: 0.9}, {2: 0.5, 1: 0.2, 0: 0.1, 8: 0.0}
    found, reverse = paired(one, other), paired(other, one)
    assert found is not None and reverse is not None and found.seeds == 3
    oracle = stats.ttest_rel([0.3, 0.5, 0.6], [0.1, 0.2, 0.5])
    low, high = oracle.confidence_interval()
    assert found.difference == pytest.approx((low + high) / 2) == -reverse.difference
    assert found.half_width == pytest.approx((high - low) / 2)
    assert paired({0: 0.1}, {0: 0.2}) is None and paired({0: 0.1, 1: 0.2}, {2: 0.2, 3: 0.1}) is None
    assert paired({0: 0.5, 1: 0.25}, {0: 0.25, 1: 0.0}) is None


def rejected(p: Sequence[float], level: float) -> list[bool]:
    """Holm word for word: from the smallest on, against level / (tests left), until one fails."""
    result = [False] * len(p)
    for step, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[place] > level / (len(p) - step):
            break
        result[place] = True
    return result


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 64).map(lambda k: k / 1024) | st.floats(0, 1)))
def test_holm_against_the_steps(p: list[float]) -> None:
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


def test_false_discovery_against_scipy() -> None:
    assert false_discovery(np.array([])).tolist() == []
    p = np.random.default_rng(0).beta(0.3, 2, (20, 20)).round(3)  # some of them alike
    for rate in (0.2, 0.05, 0.01):
        oracle = stats.false_discovery_control(p.ravel()).reshape(p.shape) <= rate
        assert np.array_equal(false_discovery(p, rate), oracle) and 0 < oracle.sum() < 400
        assert np.array_equal(false_discovery(p), oracle) == (rate == 0.05)
