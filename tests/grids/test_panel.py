"""Panels: what is refused, and their intervals and lengths solved against scipy and loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel, panels_of
from tape_arith.arith.grids.statistics import student_t
from tests.helpers.made_grids import DEPTHS, LISTS, blank, drawn, filled, flat


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        ([], "nothing to compare"),
        ([flat("tape"), flat("rope", 1), flat("rope", 1)], "rope has two grids of one seed among"),
        ([flat("tape"), flat("fire", size=9)], "max digits 9, not 8"),
        ([flat("tape"), flat("tape", 1, budget={"steps": 3})], "steps 3, not 1500"),
    ],
)
def test_grids_that_are_refused(grids: list[Grid], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        panels_of(grids)


def test_panels_in_the_order_of_names_and_grids_in_that_of_seeds() -> None:
    grids = [flat("fire", 2), flat("rope", 1), flat("tape"), flat("fire", 0)]
    panels = panels_of(grids, ["tape", "nope"])
    assert [(panel.name, panel.seeds) for panel in panels] == [
        ("tape", (0,)),
        ("fire", (0, 2)),
        ("rope", (1,)),
    ]
    assert panels[1].only(2).grids == (grids[0],)
    with pytest.raises(UsageError, match="seeds 0, 2"):
        panels[1].only(1)


@pytest.mark.parametrize(
    ("inside", "mark"),
    [
        ((100, 99, 99), None),
        ((100, 98, 100), "1 not converged"),
        ((98, 100, 100), "1 not converged"),
        ((100, 97, 98), "2 not converged"),
        ((98, 97, 98), "not converged"),
    ],
)
def test_every_seed_must_converge(inside: tuple[int, ...], mark: str | None) -> None:
    panel = Panel.of(flat("rope", seed, inside=share) for seed, share in enumerate(inside))
    assert (panel.convergence, panel.ranked) == (mark, mark is None)


class TestInterval:
    def test_one_cell_is_wilson(self) -> None:
        interval = Panel.of([filled([[30]], trained=1)]).interval("all_cells")
        oracle = stats.binomtest(30, 100).proportion_ci(0.95, "wilson")
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx(tuple(oracle))
        assert interval.of != "seeds" and interval.count == 100

    def test_all_right_and_all_wrong_have_a_width(self) -> None:
        for right, end in ((0, "low"), (100, "high")):
            interval = Panel.of([filled([[right] * 3] * 3)]).interval("all_cells")
            assert interval is not None and interval.half_width > 0
            assert getattr(interval, end) == right / 100

    def test_it_covers_other_problems(self) -> None:
        # Steep cells, as real grids have: the interval must not be too narrow.
        p = np.clip(np.add.outer(np.arange(8), np.arange(8)) / 14, 0, 1)
        draw = np.random.default_rng(0)
        runs = [Panel.of([filled(draw.binomial(100, p))]).interval("all_cells") for _ in range(300)]
        hits = [run is not None and run.low <= p.mean() <= run.high for run in runs]
        assert np.mean(hits) >= 0.95

    def test_of_several_seeds(self) -> None:
        seeds = [filled([[100, 20 + 5 * k], [30, 10]], trained=1, seed=k) for k in range(3)]
        by_hand = student_t([0.6 / 3, 0.65 / 3, 0.7 / 3])
        interval = Panel.of(seeds).interval("out_of_distribution")
        assert interval is not None and by_hand is not None and interval.of == "seeds"
        assert interval.half_width == pytest.approx(by_hand.half_width)
        alone = Panel.of(seeds[:1]).interval("all_cells")
        assert alone is not None and alone.of != "seeds"
        whole = [filled([[100]], trained=1, seed=seed) for seed in range(2)]
        in_part = [*seeds[:2], blank(size=2, trained=1, seed=2)]  # a seed that is not scored
        for grids in (whole, whole[:1], [blank()], in_part):
            assert Panel.of(grids).interval("out_of_distribution") is None


def test_intervals_of_cells_have_the_grid_s_shape() -> None:
    counts = np.random.default_rng(0).integers(0, 101, (3, 4, 4))
    grids = [filled(exact, seed=seed) for seed, exact in enumerate(counts)]
    low, high = Panel.of(grids).cell_intervals()
    assert low.shape == high.shape == (4, 4)
    expected = student_t([grid.accuracy[1, 2] for grid in grids])
    assert expected is not None and (low[1, 2], high[1, 2]) == (expected.low, expected.high)


class TestSolved:
    def test_by_the_longer_operand(self) -> None:
        grid = filled([[100, 80, 0], [90, 40, 0], [60, 0, 0]])
        assert Panel.of([grid]).by_length() == pytest.approx(
            {1: 1.0, 2: (0.8 + 0.9 + 0.4) / 3, 3: 0.6 / 5}
        )
        other = filled([[100, 0, 0], [0, 0, 0], [0, 0, 0]], seed=1)
        assert Panel.of([grid, other]).by_length() == pytest.approx({1: 1.0, 2: 0.35, 3: 0.06})

    def test_of_lists_with_no_more_numbers_than_trained(self) -> None:
        grid = drawn("rope", 0, LISTS)  # 2 to 5 numbers, trained to 3; 1 to 8 digits
        shares = (grid.exact[0] + grid.exact[1]) / 200
        assert Panel.of([grid]).by_length() == pytest.approx(
            dict(zip(range(1, 9), shares, strict=True))
        )

    def test_of_a_haystack_at_every_depth(self) -> None:
        grid = drawn("rope", 0, DEPTHS)  # 5 depths; 1 to 8 digits
        shares = grid.exact.mean(axis=0) / 100
        assert Panel.of([grid]).by_length() == pytest.approx(
            dict(zip(range(1, 9), shares, strict=True))
        )

    @pytest.mark.parametrize(("right", "share"), [(90, 0.9), (99, 0.99)])
    def test_the_share_itself_is_enough(self, right: int, share: float) -> None:
        grids = [filled(np.full((6, 6), right), seed=seed) for seed in range(3)]
        assert Panel.of(grids).solved_to(share) == 6
        grids[1].exact[5, 5] -= 1
        assert Panel.of(grids).solved_to(share) == 5

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.integers(0, 100), min_size=16, max_size=16))
    def test_against_loops(self, counts: list[int]) -> None:
        rows = [counts[4 * k : 4 * k + 4] for k in range(4)]
        expected = 0
        for length in range(1, 5):
            cells = [rows[i][j] for i in range(4) for j in range(4) if max(i + 1, j + 1) == length]
            if sum(cells) < 90 * len(cells):
                break
            expected = length
        assert Panel.of([filled(rows)]).solved_to(0.9) == expected
