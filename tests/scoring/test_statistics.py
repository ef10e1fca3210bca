"""Intervals against scipy, naive loops, and the ends of their ranges."""

from time import perf_counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.scoring.statistics import (
    mean_and_variance,
    one_run,
    over_seeds,
    student_t,
    t_quantile,
    t_two_sided,
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

    @pytest.mark.parametrize("df", [1, 1.0001, 2, 2.7, 4, 9.3, 30, 1000.5])
    def test_both_tails_against_scipy(self, df: float) -> None:
        for t in (0.0, 1e-9, 0.3, 1.0, -2.5, 4.3, 31.8, -700.0, 1e6):
            assert t_two_sided(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9)

    def test_variance(self) -> None:
        values = [0.11, 0.13, 0.4]
        assert mean_and_variance(values) == pytest.approx((np.mean(values), np.var(values, ddof=1)))
        assert mean_and_variance([0.1] * 3)[1] == 0.0

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


class TestWilsonCovers:
    """Exactly, not by drawing: the sum over all counts of a cell."""

    @staticmethod
    def coverage(total: int, p: Any) -> Any:
        """float64[len(p)]: how probable it is that the interval of a cell holds p."""
        counts = np.arange(total + 1)
        low, high = wilson(counts, total)
        holds = (low <= p[:, None]) & (p[:, None] <= high)
        return (stats.binom.pmf(counts, total, p[:, None]) * holds).sum(axis=1)

    @pytest.mark.parametrize("total", [10, 20, 100, 300, 1000])
    def test_on_average_over_p(self, total: int) -> None:
        p = (np.arange(4000) + 0.5) / 4000
        assert 0.945 <= self.coverage(total, p).mean() <= 0.96

    def test_at_a_given_p_it_may_cover_less(self) -> None:
        # One wrong of a hundred ends above 1/1000, none does not: known, and at the ends alone.
        p = np.linspace(0.001, 0.999, 999)
        found = self.coverage(100, p)
        assert found.min() >= 0.83 and found[50:-50].min() >= 0.91


class TestOneRun:
    def test_one_cell_is_wilson(self) -> None:
        found = one_run(grid([[30]], trained=1), "all_cells")
        oracle = stats.binomtest(30, 100).proportion_ci(0.95, "wilson")
        assert found is not None and (found.low, found.high) == pytest.approx(tuple(oracle))
        assert found.of == "this run only" and found.count == 100

    def test_all_right_and_all_wrong_have_a_width(self) -> None:
        for right, end in ((0, "low"), (100, "high")):
            found = one_run(grid([[right] * 3] * 3), "all_cells")
            assert found is not None and found.half_width > 0
            assert getattr(found, end) == right / 100

    def test_unequal_cells(self) -> None:
        total = np.array([[10, 1000], [1000, 1000]])
        found, even = (
            one_run(grid(total // 2, total), "all_cells"),
            one_run(grid([[50, 50]] * 2), "all_cells"),
        )
        assert found is not None and even is not None
        assert found.mean == 0.5 and found.half_width > even.half_width

    def test_covers_other_problems(self) -> None:
        # Steep cells, as real grids have: the interval must not be too narrow.
        p = np.clip(np.add.outer(np.arange(8), np.arange(8)) / 14, 0, 1)
        draw = np.random.default_rng(0)
        found = [one_run(grid(draw.binomial(100, p)), "all_cells") for _ in range(300)]
        hits = [one is not None and one.low <= p.mean() <= one.high for one in found]
        assert np.mean(hits) >= 0.95

    def test_missing_cells(self) -> None:
        some = grid([[1, 1], [1, 0]], [[100, 100], [100, 0]])
        assert one_run(some, "all_cells") is None and one_run(some, "in_distribution") is not None
        assert one_run(grid([[1]]), "out_of_distribution") is None

    def test_over_seeds(self) -> None:
        seeds = [grid([[100, 20 + 5 * k], [30, 10]], seed=k) for k in range(3)]
        found = over_seeds(seeds, "out_of_distribution")
        by_hand = student_t([0.6 / 3, 0.65 / 3, 0.7 / 3])
        assert found is not None and by_hand is not None and found.of == "seeds"
        assert (found.mean, found.half_width) == pytest.approx((by_hand.mean, by_hand.half_width))
        alone = over_seeds(seeds[:1], "all_cells")
        assert alone is not None and alone.of == "this run only"
        seeds[1].total[1, 1] = seeds[1].exact[1, 1] = 0
        assert (
            over_seeds(seeds, "all_cells") is None
            and over_seeds(seeds, "in_distribution") is not None
        )
        assert over_seeds([], "all_cells") is None


REPETITIONS, PER_CELL = 4000, 100
LONGER = np.maximum.outer(np.arange(1, 17), np.arange(1, 17))
LONGER = LONGER[LONGER > 8]
"""Of each cell out of distribution in a grid to 16 digits, trained to 8, its longer operand."""


def cells(reach: Any, midpoint: float) -> Any:
    """float64[..., 192]: how probably runs of `reach` (digits beyond `midpoint`) solve a problem
    of each cell; it falls along the longer operand, as in the grids of results/mini."""
    return 1 / (1 + np.exp(1.5 * (LONGER - midpoint - np.asarray(reach)[..., None])))


def simulated(midpoint: float, spread: float, seeds: int) -> tuple[float, Any]:
    """The true mean over runs, and float64[4000, seeds] of measured means.

    Each run's reach is drawn from a normal distribution of standard deviation `spread` (the
    variance between seeds), then each of its 192 cells from the binomial of 100 problems (the
    noise of problems). The truth is the mean of the cells over all reaches, by Gauss-Hermite.
    """
    draw = np.random.default_rng([seeds, round(1000 * midpoint), round(1000 * spread)])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    truth = float(weights / weights.sum() @ cells(spread * nodes, midpoint).mean(axis=-1))
    reach = draw.normal(0, spread, (REPETITIONS, seeds))
    parts = [draw.binomial(PER_CELL, cells(r, midpoint)).mean(axis=-1) for r in reach.T]
    return truth, np.stack(parts, axis=1) / PER_CELL


def share_covered(truth: float, means: Any) -> float:
    found = [student_t(row) for row in means.tolist()]
    return float(np.mean([one is not None and one.low <= truth <= one.high for one in found]))


class TestOverSeedsCovers:
    """4,000 leaderboards each: a coverage of 95 % is estimated to within 0.3 % (one sigma)."""

    @pytest.mark.parametrize("seeds", [3, 5, 10])
    @pytest.mark.parametrize(
        ("midpoint", "spread", "mean", "between"),
        [
            (10.0, 0.5, 0.152, 0.045),  # as nope and rand-rope at mini
            (12.0, 1.0, 0.369, 0.118),
            (10.0, 0.0, 0.149, 0.0018),  # nothing but the noise of problems
        ],
    )
    def test_runs_vary(
        self, seeds: int, midpoint: float, spread: float, mean: float, between: float
    ) -> None:
        truth, means = simulated(midpoint, spread, seeds)
        assert truth == pytest.approx(mean, abs=0.002) == pytest.approx(means.mean(), abs=0.006)
        assert means.std() == pytest.approx(between, rel=0.1)
        assert 0.93 <= share_covered(truth, means) <= 0.97

    @pytest.mark.parametrize("seeds", [3, 5, 10])
    def test_near_an_end_of_the_scale_it_covers_less(self, seeds: int) -> None:
        """Where most runs are at 0 and few above, three seeds do not show the few: no interval
        over so few can. The docstring of `student_t` says so."""
        truth, means = simulated(8.0, 1.0, seeds)
        assert 0.03 <= truth <= 0.04
        assert 0.83 <= share_covered(truth, means) <= 0.92

    def test_problems_pooled_over_seeds_would_not(self) -> None:
        """Why nothing counted over problems may speak of encodings."""
        truth, means = simulated(10.0, 0.5, 3)
        total = 3 * len(LONGER) * PER_CELL
        low, high = wilson(means.mean(axis=1) * total, total)
        assert ((low <= truth) & (truth <= high)).mean() < 0.3
