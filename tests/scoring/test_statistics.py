"""Intervals and tests against scipy, naive loops, and the ends of their ranges."""

from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arith.scoring.grid import Grid
from arith.scoring.statistics import (
    false_discovery,
    one_run,
    over_seeds,
    student_t,
    t_quantile,
    two_proportion,
    wilson,
)


def grid(exact: Any, total: Any = 100, seed: int = 0, trained: int = 1) -> Grid:
    counts = np.array(exact, dtype=np.int64)
    evaluation = {"task": "addition", "version": 1, "seed": 0, "max_digits": len(counts)}
    evaluation |= {"problems_per_cell": 10_000, "sha256": "00"}
    made = Grid.empty(
        "tape", preset="mini", seed=seed, trained_digits=trained, budget={}, evaluation=evaluation
    )
    made.exact[:], made.total[:] = counts, total
    return made


class TestWilson:
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
    @pytest.mark.parametrize("total", [1, 2, 7, 100, 12_500])
    def test_against_scipy(self, total: int, level: float) -> None:
        right = np.unique(np.linspace(0, total, 9).astype(int))
        low, high = wilson(right, total, level)
        for k, a, b in zip(right, low, high, strict=True):
            oracle = stats.binomtest(int(k), total).proportion_ci(level, "wilson")
            assert (a, b) == pytest.approx((oracle.low, oracle.high), abs=1e-13)

    def test_ends(self) -> None:
        low, high = wilson([0, 100, 0], [100, 100, 0])
        assert low[0] == 0.0 and 0 < high[0] < 0.05
        assert high[1] == 1.0 and 0.95 < low[1] < 1
        assert np.isnan([low[2], high[2]]).all()

    def test_a_whole_grid_takes_milliseconds(self) -> None:
        total = np.full((80, 80), 100)
        right = np.arange(6400).reshape(80, 80) % 101
        start = perf_counter()
        low, high = wilson(right, total)
        assert perf_counter() - start < 0.2
        assert low.shape == (80, 80) and ((low <= right / total) & (right / total <= high)).all()

    def test_level(self) -> None:
        with pytest.raises(ValueError, match="level"):
            wilson(1, 2, 95)


class TestStudent:
    @pytest.mark.parametrize("df", [*range(1, 31), 2.5, 47.3, 100, 1000, 100_000])
    def test_quantiles_against_scipy(self, df: float) -> None:
        for p in (0.5, 0.501, 0.6, 0.9, 0.95, 0.975, 0.995, 0.9995, 0.1, 0.025):
            assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-12)

    def test_nonsense(self) -> None:
        for p, df in ((0.0, 3), (1.0, 3), (0.9, 0)):
            with pytest.raises(ValueError, match="no quantile"):
                t_quantile(p, df)

    @pytest.mark.parametrize("means", [[0.1, 0.4], [0.2, 0.25, 0.31], [0.5, 0.52, 0.4, 0.45, 0.48]])
    def test_interval_against_scipy(self, means: list[float]) -> None:
        found = student_t(means, 0.9)
        assert found is not None and found.of == "seeds" and found.count == len(means)
        low, high = stats.t.interval(0.9, len(means) - 1, np.mean(means), stats.sem(means))
        assert found.mean == pytest.approx(np.mean(means))
        assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
            (low, high)
        )
        assert (found.low, found.high) == pytest.approx((max(low, 0), min(high, 1)))

    def test_one_seed_has_no_spread(self) -> None:
        assert student_t([0.5]) is None and student_t([]) is None

    def test_equal_seeds(self) -> None:
        for value in (0.0, 0.1, 0.7, 1.0):
            found = student_t([value] * 3)
            assert found is not None and found.half_width == 0.0
            assert found.low == found.high == pytest.approx(value)

    def test_clipped(self) -> None:
        found = student_t([0.99, 1.0, 0.9])
        assert found is not None and found.high == 1.0 and found.mean + found.half_width > 1


class TestOneRun:
    def test_one_cell_is_wilson(self) -> None:
        found = one_run(grid([[30]], trained=1), "all")
        oracle = stats.binomtest(30, 100).proportion_ci(0.95, "wilson")
        assert found is not None and (found.low, found.high) == pytest.approx(tuple(oracle))
        assert found.of == "this run only" and found.count == 100

    def test_all_right_and_all_wrong_have_a_width(self) -> None:
        for right, end in ((0, "low"), (100, "high")):
            found = one_run(grid([[right] * 3] * 3), "all")
            assert found is not None and found.half_width > 0
            assert getattr(found, end) == right / 100

    def test_unequal_cells(self) -> None:
        total = np.array([[10, 1000], [1000, 1000]])
        found, even = one_run(grid(total // 2, total), "all"), one_run(grid([[50, 50]] * 2), "all")
        assert found is not None and even is not None
        assert found.mean == 0.5 and found.half_width > even.half_width

    def test_covers_other_problems(self) -> None:
        # Steep cells, as real grids have: the interval must not be too narrow.
        p = np.clip(np.add.outer(np.arange(8), np.arange(8)) / 14, 0, 1)
        draw = np.random.default_rng(0)
        found = [one_run(grid(draw.binomial(100, p)), "all") for _ in range(300)]
        hits = [one is not None and one.low <= p.mean() <= one.high for one in found]
        assert np.mean(hits) >= 0.95

    def test_missing_cells(self) -> None:
        some = grid([[1, 1], [1, 0]], [[100, 100], [100, 0]])
        assert one_run(some, "all") is None and one_run(some, "trained") is not None
        assert one_run(grid([[1]]), "out_of_distribution") is None

    def test_over_seeds(self) -> None:
        seeds = [grid([[100, 20 + 5 * k], [30, 10]], seed=k) for k in range(3)]
        found = over_seeds(seeds, "out_of_distribution")
        by_hand = student_t([0.6 / 3, 0.65 / 3, 0.7 / 3])
        assert found is not None and by_hand is not None and found.of == "seeds"
        assert (found.mean, found.half_width) == pytest.approx((by_hand.mean, by_hand.half_width))
        alone = over_seeds(seeds[:1], "all")
        assert alone is not None and alone.of == "this run only"
        seeds[1].total[1, 1] = seeds[1].exact[1, 1] = 0
        assert over_seeds(seeds, "all") is None and over_seeds(seeds, "trained") is not None
        assert over_seeds([], "all") is None


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
