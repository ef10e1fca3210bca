"""Cells, regions, means and what may stand in one figure."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape_arith.arith.errors import UsageError
from tape_arith.arith.scoring.comparable import check_comparable
from tape_arith.arith.scoring.regions import REGIONS, mask
from tests.helpers.made_grids import blank, filled, scored


class TestRegions:
    def test_masks_by_hand(self) -> None:
        said = {region: mask(region, 3, 1).astype(int).tolist() for region in REGIONS}
        assert said == {
            "in_distribution": [[1, 0, 0], [0, 0, 0], [0, 0, 0]],
            "one_longer": [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
            "both_longer": [[0, 0, 0], [0, 1, 1], [0, 1, 1]],
            "out_of_distribution": [[0, 1, 1], [1, 1, 1], [1, 1, 1]],
            "all_cells": [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
        }

    def test_masks_part_the_grid(self) -> None:
        parts = [mask(region, 7, 3) for region in ("in_distribution", "one_longer", "both_longer")]
        assert np.array_equal(sum(part.astype(int) for part in parts), np.ones((7, 7)))

    def test_unknown_region(self) -> None:
        with pytest.raises(UsageError, match="unknown region 'inside'"):
            mask("inside", 3, 1)  # type: ignore[arg-type]

    def test_a_model_that_knows_its_lengths_only_has_a_quarter_of_all_cells(self) -> None:
        for trained in (1, 8, 40):
            exact = 100 * mask("in_distribution", 2 * trained, trained)
            grid = filled(exact, trained=trained)
            assert grid.mean("all_cells").value == 0.25
            assert grid.mean("in_distribution").value == 1.0
            assert grid.mean("out_of_distribution").value == 0.0

    def test_means_by_hand(self) -> None:
        grid = filled([[100, 50, 30], [40, 20, 10], [0, 6, 8]], trained=1)
        means = {region: grid.mean(region).value for region in REGIONS}
        assert means == pytest.approx(
            {
                "in_distribution": 1.0,
                "one_longer": (0.5 + 0.3 + 0.4 + 0.0) / 4,
                "both_longer": (0.2 + 0.1 + 0.06 + 0.08) / 4,
                "out_of_distribution": 1.64 / 8,
                "all_cells": 2.64 / 9,
            }
        )

    def test_every_cell_weighs_the_same(self) -> None:
        grid = filled([[100, 0], [0, 0]], trained=1)
        grid.total[1, 1] = 4
        assert grid.mean("all_cells").value == 0.25

    def test_a_missing_cell_is_never_zero(self) -> None:
        grid = filled([[100, 50], [50, 0]], trained=1)
        grid.total[0, 1] = grid.exact[0, 1] = 0
        assert grid.mean("in_distribution") == (1.0, 1, 0)
        assert grid.mean("both_longer") == (0.0, 1, 0)
        assert grid.mean("one_longer") == (None, 2, 1)
        assert grid.mean("out_of_distribution") == (None, 3, 1)
        assert grid.mean("all_cells") == (None, 4, 1)
        assert np.isnan(grid.accuracy[0, 1])

    def test_an_empty_region_has_no_mean(self) -> None:
        assert filled([[1, 1], [1, 1]], trained=2).mean("out_of_distribution") == (None, 0, 0)

    def test_converged(self) -> None:
        assert filled([[99, 0], [0, 0]], trained=1).converged is True
        assert filled([[98, 0], [0, 0]], trained=1).converged is False
        assert filled([[98, 100, 0], [99, 99, 0], [0, 0, 0]], trained=2).converged is True
        assert blank().converged is None


class TestAdd:
    def test_by_hand(self) -> None:
        grid = blank()
        grid.add(
            np.array([[1, 3], [1, 3], [1, 3], [4, 2]]),
            np.array([True, False, False, True]),
            np.array([5, 4, 2, 6]),
            np.array([5, 5, 4, 6]),
            np.array([-1, 3, 0, -1]),
        )
        assert grid.total[0, 2] == 3 and grid.exact[0, 2] == 1 and grid.total.sum() == 4
        assert grid.exact[3, 1] == 1  # the first operand chooses the row
        assert grid.right_share[0, 2] == pytest.approx((1 + 0.8 + 0.5) / 3, abs=1e-9)
        assert grid.first_wrong[0, 2] == 1.5
        assert np.isnan(grid.first_wrong[3, 1]) and np.isnan(grid.right_share[0, 0])

    def test_an_empty_chunk_changes_nothing(self) -> None:
        grid = blank()
        grid.add(*scored(0))
        assert grid.total.sum() == 0

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(0, 500), max_size=6), st.integers(0, 5))
    def test_any_chunks_in_any_order_give_the_same(self, cuts: list[int], seed: int) -> None:
        columns = scored(500, seed=seed)
        whole = blank()
        whole.add(*columns)
        edges = [0, *sorted(cuts), 500]
        chunks = [slice(a, b) for a, b in pairwise(edges)]
        parts = blank()
        for chunk in reversed(chunks):
            parts.add(*(column[chunk] for column in columns))
        assert parts.content() == whole.content()
        assert np.array_equal(parts.right_sum, whole.right_sum)

    def test_a_cell_counted_twice_is_noticed(self) -> None:
        grid = blank(evaluation={"problems_per_cell": 1})
        one = (np.array([[1, 1]]), np.array([True]), np.array([2]), np.array([2]), np.array([-1]))
        grid.add(*one)
        with pytest.raises(AssertionError, match="twice"):
            grid.add(*one)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"trained": 0}, "1 digit or more"),
            ({"trained": 5}, "score to 5 digits or more"),
            ({"evaluation": {"problems_per_cell": 0}}, "0 problems a cell: give 1 to"),
        ],
    )
    def test_what_cannot_be_scored(self, change: dict[str, Any], says: str) -> None:
        with pytest.raises(UsageError, match=says):
            blank(**change)


class TestComparable:
    def test_seeds_encodings_and_ways_of_scoring_may_differ(self) -> None:
        check_comparable(
            [blank(), blank(seed=1), blank(encoding="fire"), blank(extrapolation="yarn")]
        )
        check_comparable([])

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (
                {"preset": "paper-40"},
                "fire seed 0 differs from tape seed 0 .preset paper-40",
            ),
            ({"budget": {"steps": 9}}, "steps 9, not 1500.: draw"),
            ({"evaluation": {"sha256": "cd"}}, "evaluation set cd, not abab"),
            ({"evaluation": {"split": "carry"}}, "split carry, not evaluation"),
            ({"trained": 1}, "trained digits 1, not 2"),
        ],
    )
    def test_what_differs_is_said_in_one_line(self, change: dict[str, Any], says: str) -> None:
        with pytest.raises(UsageError, match=says) as caught:
            check_comparable([blank(), blank(), blank(encoding="fire", **change)])
        assert "\n" not in str(caught.value)
