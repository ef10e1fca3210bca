"""Cells, regions, means, files and what may stand in one figure."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Corrupt, UsageError
from tape_arith.arith.files import read_text
from tape_arith.arith.grids.axes import (
    REGIONS,
    Bools,
    Region,
    digit_pairs,
    number_longer,
    region_mask,
    regions,
    scored_axes,
)
from tape_arith.arith.grids.comparable import check_comparable, differences, is_same_run
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.find import every_run
from tests.helpers.committed_runs import RESULTS
from tests.helpers.made_grids import DEPTHS, blank, drawn, filled, scored


def test_masks_by_hand() -> None:
    masks = {
        region: region_mask(region, digit_pairs(1, 3)).astype(int).tolist() for region in REGIONS
    }
    assert masks == {
        "in_distribution": [[1, 0, 0], [0, 0, 0], [0, 0, 0]],
        "one_longer": [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
        "both_longer": [[0, 0, 0], [0, 1, 1], [0, 1, 1]],
        "out_of_distribution": [[0, 1, 1], [1, 1, 1], [1, 1, 1]],
        "all_cells": [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
    }


def test_a_mask_is_the_callers_own() -> None:
    grid = blank()
    grid.mask("in_distribution")[:] = False
    assert grid.mask("in_distribution").any()


def test_along_a_place_nothing_is_longer() -> None:
    """The whole depth is in distribution, and a haystack alone is longer or not."""
    longer = np.tile(np.arange(1, 9) > 4, (5, 1))
    masks = {region: region_mask(region, DEPTHS) for region in regions(DEPTHS)}
    expected: dict[Region, Bools] = {"in_distribution": ~longer, "out_of_distribution": longer}
    assert list(masks) == [*expected, "all_cells"] and masks["all_cells"].all()
    for region, mask in expected.items():
        assert np.array_equal(masks[region], mask)
    for depth in (1, 5):
        assert number_longer(DEPTHS, np.array([[depth, 4], [depth, 5]])).tolist() == [0, 1]
    trained, tested = (Bucket("passkey:depths=5", digits, 0, "any") for digits in (4, 8))
    assert scored_axes(trained, tested) == DEPTHS and trained.most == (5, 4)


def test_means_by_hand() -> None:
    grid = filled([[100, 50, 30], [40, 20, 10], [0, 6, 8]], trained=1)
    means = {region: grid.mean(region) for region in REGIONS}
    assert means == pytest.approx(
        {
            "in_distribution": 1.0,
            "one_longer": (0.5 + 0.3 + 0.4 + 0.0) / 4,
            "both_longer": (0.2 + 0.1 + 0.06 + 0.08) / 4,
            "out_of_distribution": 1.64 / 8,
            "all_cells": 2.64 / 9,
        }
    )


def test_an_empty_region_or_a_grid_scored_in_part() -> None:
    grid = filled([[1, 1], [1, 1]])
    assert grid.mean("out_of_distribution") is grid.mean("one_longer") is None
    assert grid.mean("all_cells") == 0.01 and "a cell" not in grid.summary()
    grid.blocks_done -= 1
    assert f"{grid.blocks_done} of {grid.blocks_done + 1}" in grid.summary()
    assert blank().mean("all_cells") is None and "not scored" in blank().summary()


def test_only_problems_that_training_has_not_seen_decide_convergence() -> None:
    grid = filled([[100, 96, 0], [100, 90, 0], [0, 0, 0]], trained=2)
    assert grid.converged is False  # 386 of 400, none of them seen
    for seen, seen_exact, share, converged in (
        ([[100, 20], [100, 80]], [[100, 16], [100, 70]], 0.75, True),  # 100 of the other 100
        ([[100, 20], [100, 80]], [[100, 18], [100, 70]], 0.75, False),  # 98 of 100
        ([[100, 21], [100, 80]], [[100, 17], [100, 70]], 0.7525, False),  # 99 decide nothing: all
        ([[100, 100], [100, 100]], [[100, 96], [100, 90]], 1.0, False),  # recall: 386 of 400
    ):
        grid.seen, grid.seen_exact = (np.pad(np.array(x), (0, 1)) for x in (seen, seen_exact))
        assert grid.seen_share == share and grid.converged is converged
    recall = filled([[100, 0], [0, 0]], trained=1)
    recall.seen = recall.seen_exact = np.array([[100, 0], [0, 0]])
    assert recall.converged is True
    grid.seen = grid.seen_exact = None  # as of grids before 0.10
    assert grid.seen_share is None and grid.converged is False


def test_what_training_has_seen_is_in_the_file(tmp_path: Path) -> None:
    grid, file = filled([[100, 0], [0, 0]], trained=1), tmp_path / "grid.json"
    grid.seen, grid.seen_exact = np.array([[60, 0], [0, 0]]), np.array([[60, 0], [0, 0]])
    grid.save(file)
    again = Grid.load(file)
    assert again.content() == grid.content() and again.seen_share == 0.6
    for seen, seen_exact in ((40, 60), (101, 60), (60, 50)):  # the last: 50 exact of 40 others
        grid.seen[0, 0], grid.seen_exact[0, 0] = seen, seen_exact
        grid.save(file)
        with pytest.raises(Corrupt, match="contradict"):
            Grid.load(file)
    grid.seen[0] = grid.seen_exact[0] = [60, 1]  # a problem longer than trained
    grid.save(file)
    with pytest.raises(Corrupt, match="contradict"):
        Grid.load(file)


def test_converged() -> None:
    assert filled([[99, 0], [0, 0]], trained=1).converged is True
    assert filled([[98, 0], [0, 0]], trained=1).converged is False
    assert filled([[98, 100, 0], [99, 99, 0], [0, 0, 0]], trained=2).converged is True
    assert blank().converged is None


class TestAdd:
    def test_by_hand(self) -> None:
        grid = blank()
        grid.add(
            np.array([[1, 3], [1, 3], [1, 3], [4, 2]]),
            np.array([5, 4, 2, 6]),
            np.array([5, 5, 4, 6]),
            np.array([-1, 3, 0, -1]),
        )
        assert grid.total[0, 2] == 3 and grid.exact[0, 2] == 1 and grid.total.sum() == 4
        assert grid.exact[3, 1] == 1  # the first operand chooses the row
        content = grid.content()
        assert content["right_share"][0][2] == pytest.approx((1 + 0.8 + 0.5) / 3, abs=1e-9)
        assert content["first_wrong"][0][2] == 1.5
        assert content["first_wrong"][3][1] is content["right_share"][0][0] is None

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(0, 500), max_size=6), st.integers(0, 5))
    def test_any_chunks_in_any_order_give_the_same(self, cuts: list[int], seed: int) -> None:
        columns = scored(500, seed=seed)
        expected, parts = blank(), blank()
        expected.add(*columns)
        for start, stop in reversed(list(pairwise([0, *sorted(cuts), 500]))):
            parts.add(*(column[start:stop] for column in columns))
        assert parts.content() == expected.content()
        assert np.array_equal(parts.right_sum, expected.right_sum)

    def test_a_cell_counted_twice_is_noticed(self) -> None:
        grid = blank(evaluation={"problems_per_cell": 1})
        one = (np.array([[1, 1]]), np.array([2]), np.array([2]), np.array([-1]))
        grid.add(*one)
        with pytest.raises(AssertionError, match="twice"):
            grid.add(*one)


@pytest.mark.parametrize(
    ("task", "digits", "count", "most"),
    [
        ("addition", 4, 0, "1,048,576"),
        ("addition", 700, 137, "136"),
        ("copy", 700, 95_870, "95,869"),
    ],
)
def test_counts_that_cannot_be_scored(task: str, digits: int, count: int, most: str) -> None:
    bucket = Bucket(task, digits, 0, "evaluation")
    with pytest.raises(UsageError, match=rf"{count:,} .*{most}$"):
        bucket.check_count(count)
    bucket.check_count(int(most.replace(",", "")))


class TestFile:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(blocks=st.integers(0, 60), seed=st.integers(0, 99))
    def test_round_trip_is_exact(self, tmp_path: Path, blocks: int, seed: int) -> None:
        grid = blank(extrapolation="yarn", scoring={"threshold": 0.125}, settings={"clip": 2.5})
        cells = np.argwhere(grid.total == 0) + 1
        grid.add(np.tile(cells, (blocks, 1)), *scored(16 * blocks, seed=seed)[1:])
        grid.blocks_done = blocks
        grid.save(tmp_path / "grid.json")
        again = Grid.load(tmp_path / "grid.json")
        assert again.content() == grid.content() and again.name == "tape+yarn"
        for field in ("exact", "total", "right_sum", "first_wrong_sum"):
            assert np.array_equal(getattr(again, field), getattr(grid, field)), field
            assert getattr(again, field).dtype == getattr(grid, field).dtype, field
        again.add(*scored(50, seed=3))  # scoring continues from a file as if it had not stopped
        grid.add(*scored(50, seed=3))
        assert again.content() == grid.content()

    def test_a_place_is_in_the_file_and_all_of_it_is_trained(self, tmp_path: Path) -> None:
        grid, path = drawn("rope", 0, DEPTHS), tmp_path / "grid.json"
        grid.save(path)
        assert Grid.load(path).axes == DEPTHS
        assert np.array_equal(Grid.load(path).exact, grid.exact)
        grid.axes = (replace(DEPTHS[0], trained=4), DEPTHS[1])
        grid.save(path)
        with pytest.raises(Corrupt, match="all of the places"):
            Grid.load(path)

    def test_published_grids_are_written_as_they_are_read(self, tmp_path: Path) -> None:
        paths = [path for run in every_run(RESULTS) for path in run.grid_files()]
        assert len(paths) > 400
        (counted,) = every_run(RESULTS / "trials/learned-6-digits")
        for path in [*paths[::25], *counted.grid_files()]:  # whose scoring has a whole number
            Grid.load(path).save(tmp_path / "grid.json")
            assert (tmp_path / "grid.json").read_text() == read_text(path), path


class TestComparable:
    def test_seeds_encodings_and_changes_at_test_time_may_differ(self) -> None:
        grids = [blank(), blank(seed=1), blank(encoding="fire"), blank(extrapolation="yarn")]
        check_comparable(grids)
        assert [is_same_run(grids[0], grid) for grid in [blank(), *grids[1:]]] == [True] + [
            False
        ] * 3

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"preset": "paper-40"}, "preset paper-40, not mini"),
            ({"trained": 1}, "trained digits 1, not 2"),
            ({"budget": {"steps": 9, "batch_size": 1}}, "steps 9, not 1500; batch size 1, not 256"),
            ({"budget": {"steps_before": 3}}, "started from another run"),
            ({"evaluation": {"sha256": "cd"}}, "evaluation set cd, not 3f2a91bc"),
            ({"evaluation": {"split": "carry"}}, "split carry, not evaluation"),
            (
                {"budget": {"config_sha256": "f" * 64}, "settings": {"clip": 2.0}},
                "other settings (clip 2.0, not the preset's)",
            ),
        ],
    )
    def test_all_differences_are_named(self, change: dict[str, Any], words: str) -> None:
        other = blank(encoding="fire", **change)
        assert differences(other, blank()) == words
        with pytest.raises(UsageError) as caught:
            check_comparable([blank(), blank(), other])
        line = f"fire seed 0 differs from tape seed 0 ({words}): draw"
        assert line in str(caught.value) and not is_same_run(blank(), blank(**change))
