"""Tests of differences against scipy, naive loops, simulations, and their degenerate ends."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tape_arith.arith.scoring.comparisons import false_discovery, holm, two_proportion, welch

shares = st.lists(st.integers(0, 20_000).map(lambda right: right / 20_000), min_size=2, max_size=6)


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
        found = welch(one, other)
        assert found is not None
        assert found.difference == pytest.approx(np.mean(one) - np.mean(other), abs=1e-15)
        assert (found.t, found.df) == pytest.approx((oracle.statistic, oracle.df), rel=1e-9)
        assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)

    @settings(max_examples=200, deadline=None)
    @given(shares, shares)
    def test_either_way_round(self, one: list[float], other: list[float]) -> None:
        there, back = welch(one, other), welch(other, one)
        if there is None or back is None:
            assert there is back and len(set(one)) == len(set(other)) == 1
            return
        assert there.t == -back.t and there.p == pytest.approx(back.p, rel=1e-9)
        assert 0 <= there.p <= 1
        least, most = min(len(one), len(other)) - 1, len(one) + len(other) - 2
        assert least - 1e-9 <= there.df <= most + 1e-9

    def test_nothing_can_be_said(self) -> None:
        for one, other in (
            ([0.5], [0.1, 0.2, 0.3]),  # one seed
            ([], [0.1, 0.2]),
            ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
            ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),  # no variance: not certainty, but no knowledge
            ([0.1, 0.1, 0.1], [0.3, 0.3]),
        ):
            assert welch(one, other) is None and welch(other, one) is None

    @pytest.mark.parametrize("seeds", [3, 5, 10])
    def test_alike_encodings_differ_in_five_of_a_hundred_tests_at_most(self, seeds: int) -> None:
        """4,000 pairs with the same true mean, one varying three times as much as the other."""
        draw = np.random.default_rng(seeds)
        one = np.clip(draw.normal(0.4, 0.02, (4000, seeds)), 0, 1)
        other = np.clip(draw.normal(0.4, 0.06, (4000, seeds)), 0, 1)
        found = [welch(a, b) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
        wrong = np.mean([test is not None and test.p <= 0.05 for test in found])
        assert 0.03 <= wrong <= 0.065


class TestHolm:
    def naive(self, p: list[float], level: float) -> list[bool]:
        """Word for word: from the smallest on, against level / (tests left), until one fails."""
        rejected = [False] * len(p)
        for step, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
            if p[place] > level / (len(p) - step):
                break
            rejected[place] = True
        return rejected

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, 64).map(lambda k: k / 1024) | st.floats(0, 1)))
    def test_against_the_steps(self, p: list[float]) -> None:
        level = 1 / 16  # with the p above exact, so that ties with the level are ties
        found = holm(p)
        near = [abs(value - level) < 1e-9 for value in found]
        for adjusted, rejected, close in zip(found, self.naive(p, level), near, strict=True):
            assert close or (adjusted <= level) == rejected

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.floats(0, 1), min_size=1))
    def test_between_p_and_bonferroni(self, p: list[float]) -> None:
        found = holm(p)
        for raw, adjusted in zip(p, found, strict=True):
            assert raw <= adjusted <= min(1.0, len(p) * raw)
        order = sorted(range(len(p)), key=p.__getitem__)
        assert all(found[a] <= found[b] for a, b in pairwise(order))

    def test_ends(self) -> None:
        assert holm([]) == [] and holm([0.04]) == [0.04]
        assert holm([0.0, 1.0, 0.6]) == [0.0, 1.0, 1.0]
        assert holm([0.02, 0.02]) == [0.04, 0.04]

    def test_the_family_is_wrong_in_five_of_a_hundred_at_most(self) -> None:
        draw = np.random.default_rng(0)
        families = draw.uniform(size=(4000, 12))
        families[:, :4] /= 1e6  # four true effects take nothing from the level of the others
        wrong = np.mean([min(holm(p)[4:]) <= 0.05 for p in families.tolist()])
        assert 0.04 <= wrong <= 0.06


class TestTwoProportion:
    def test_against_scipy(self) -> None:
        draw = np.random.default_rng(1)
        for _ in range(50):
            n_a, n_b = draw.integers(5, 300, 2)
            a, b = draw.integers(1, n_a), draw.integers(0, n_b)
            table = [[a, n_a - a], [b, n_b - b]]
            oracle = stats.chi2_contingency(table, correction=False).pvalue
            found = two_proportion([a], [n_a], [b], [n_b])
            assert found[0] == pytest.approx(oracle, rel=1e-9, abs=1e-15)

    def test_ends(self) -> None:
        p = two_proportion([0, 100, 0, 100, 0], 100, [0, 100, 100, 50, 0], [100] * 4 + [0])
        assert p[0] == p[1] == 1.0 and p[2] < 1e-20 and p[3] < 1e-10 and np.isnan(p[4])

    def test_shape(self) -> None:
        n = np.full((80, 80), 100)
        assert two_proportion(n // 2, n, n // 3, n).shape == (80, 80)


def naive_discovery(p: list[float], rate: float) -> list[bool]:
    """Benjamini and Hochberg word for word: the largest k with p_(k) <= k / m * rate."""
    tests = sorted(value for value in p if value == value)
    cut = -1.0
    for k, value in enumerate(tests, start=1):
        if value <= rate * k / len(tests):
            cut = value
    return [value <= cut for value in p]


class TestFalseDiscovery:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.floats(0, 1) | st.floats(0, 0.02) | st.just(float("nan"))))
    def test_against_a_loop(self, p: list[float]) -> None:
        assert false_discovery(np.array(p)).tolist() == naive_discovery(p, 0.05)

    def test_against_scipy(self) -> None:
        p = np.random.default_rng(0).beta(0.3, 2, (20, 20))
        oracle = stats.false_discovery_control(p.ravel()).reshape(p.shape) <= 0.05
        assert np.array_equal(false_discovery(p), oracle)

    def test_nothing_to_test(self) -> None:
        assert not false_discovery(np.full((3, 3), np.nan)).any()
        assert false_discovery(np.array([])).shape == (0,)

    def test_stricter_rates_find_less(self) -> None:
        p = np.random.default_rng(0).beta(0.3, 2, 400)
        found: list[Any] = [false_discovery(p, rate).sum() for rate in (0.2, 0.05, 0.01)]
        assert all(more >= less for more, less in pairwise(found))
