"""Cells, regions, means and the file of a grid."""

import json
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arith.errors import Failure, UsageError
from arith.scoring.grid import REGIONS, Grid, comparable, mask

EVALUATION = {
    "task": "addition",
    "version": 1,
    "seed": 0,
    "max_digits": 4,
    "problems_per_cell": 100,
    "sha256": "ab" * 32,
}


def blank(size: int = 4, trained: int = 2, **more: Any) -> Grid:
    evaluation = {**EVALUATION, "max_digits": size, **more.pop("evaluation", {})}
    given = {"encoding": "tape", "preset": "mini", "seed": 0, "budget": {"steps": 1500}, **more}
    return Grid.empty(given.pop("encoding"), trained_digits=trained, evaluation=evaluation, **given)


def filled(exact: object, total: int = 100, **more: Any) -> Grid:
    counts = np.array(exact, dtype=np.int64)
    grid = blank(len(counts), **more)
    grid.exact[:], grid.total[:], grid.right_sum[:] = counts, total, counts
    return grid


def scored(count: int, size: int = 4, seed: int = 0) -> tuple[Any, ...]:
    """The five arrays of `add` for `count` problems."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, size + 1, (count, 2))
    tokens = lengths.max(axis=1) + draw.integers(1, 3, count)
    right = draw.integers(0, tokens + 1)
    exact = right == tokens
    place = np.where(exact, -1, draw.integers(0, tokens))
    return lengths, exact, right, tokens, place


class TestRegions:
    def test_masks_by_hand(self) -> None:
        said = {region: mask(region, 3, 1).astype(int).tolist() for region in REGIONS}
        assert said == {
            "trained": [[1, 0, 0], [0, 0, 0], [0, 0, 0]],
            "one_longer": [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
            "both_longer": [[0, 0, 0], [0, 1, 1], [0, 1, 1]],
            "out_of_distribution": [[0, 1, 1], [1, 1, 1], [1, 1, 1]],
            "all": [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
        }

    def test_masks_part_the_grid(self) -> None:
        parts = [mask(region, 7, 3) for region in ("trained", "one_longer", "both_longer")]
        assert np.array_equal(sum(part.astype(int) for part in parts), np.ones((7, 7)))

    def test_unknown_region(self) -> None:
        with pytest.raises(UsageError, match="unknown region 'inside'"):
            mask("inside", 3, 1)  # type: ignore[arg-type]

    def test_a_model_that_knows_its_lengths_only_has_a_quarter_of_all_cells(self) -> None:
        for trained in (1, 8, 40):
            exact = 100 * mask("trained", 2 * trained, trained)
            grid = filled(exact, trained=trained)
            assert grid.mean("all").value == 0.25
            assert grid.mean("trained").value == 1.0
            assert grid.mean("out_of_distribution").value == 0.0

    def test_means_by_hand(self) -> None:
        grid = filled([[100, 50, 30], [40, 20, 10], [0, 6, 8]], trained=1)
        means = {region: grid.mean(region).value for region in REGIONS}
        assert means == pytest.approx(
            {
                "trained": 1.0,
                "one_longer": (0.5 + 0.3 + 0.4 + 0.0) / 4,
                "both_longer": (0.2 + 0.1 + 0.06 + 0.08) / 4,
                "out_of_distribution": 1.64 / 8,
                "all": 2.64 / 9,
            }
        )

    def test_every_cell_weighs_the_same(self) -> None:
        grid = filled([[100, 0], [0, 0]], trained=1)
        grid.total[1, 1] = 4
        assert grid.mean("all").value == 0.25

    def test_a_missing_cell_is_never_zero(self) -> None:
        grid = filled([[100, 50], [50, 0]], trained=1)
        grid.total[0, 1] = grid.exact[0, 1] = 0
        assert grid.mean("trained") == (1.0, 1, 0)
        assert grid.mean("both_longer") == (0.0, 1, 0)
        assert grid.mean("one_longer") == (None, 2, 1)
        assert grid.mean("out_of_distribution") == (None, 3, 1)
        assert grid.mean("all") == (None, 4, 1)
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
    @given(st.lists(st.integers(0, 500), max_size=6), st.integers(0, 5), st.booleans())
    def test_any_chunks_in_any_order_give_the_same(
        self, cuts: list[int], seed: int, merge: bool
    ) -> None:
        columns = scored(500, seed=seed)
        whole = blank()
        whole.add(*columns)
        edges = [0, *sorted(cuts), 500]
        chunks = [slice(a, b) for a, b in pairwise(edges)]
        parts = blank()
        for chunk in reversed(chunks):
            target = blank() if merge else parts
            target.add(*(column[chunk] for column in columns))
            if merge:
                parts.merge(target)
        assert parts.content() == whole.content()
        assert np.array_equal(parts.right_sum, whole.right_sum)

    def test_a_cell_counted_twice_is_noticed(self) -> None:
        grid = blank(evaluation={"problems_per_cell": 1})
        one = (np.array([[1, 1]]), np.array([True]), np.array([2]), np.array([2]), np.array([-1]))
        grid.add(*one)
        with pytest.raises(AssertionError, match="twice"):
            grid.add(*one)

    def test_merge_counts_blocks_and_refuses_another_run(self) -> None:
        one, other = blank(), blank()
        one.blocks_done, other.blocks_done = 2, 3
        one.merge(other)
        assert one.blocks_done == 5
        with pytest.raises(UsageError, match=r"seed is 0 for tape .* but 1 for tape"):
            one.merge(blank(seed=1))

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
        comparable([blank(), blank(seed=1), blank(encoding="fire"), blank(extrapolation="yarn")])
        comparable([])

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"preset": "paper-40"}, "preset is mini for tape .seed 0. but paper-40 for fire"),
            ({"budget": {"steps": 9}}, "budget steps is 1500 for .* but 9 for fire"),
            ({"budget": {"steps": 1500, "x": 1}}, "budget x is nothing for .* but 1 for fire"),
            ({"evaluation": {"sha256": "cd"}}, "evaluation sha256 is abab.* but cd for fire"),
            ({"trained": 1}, "trained_digits is 2"),
        ],
    )
    def test_what_differs_is_said_in_one_line(self, change: dict[str, Any], says: str) -> None:
        with pytest.raises(UsageError, match=says) as caught:
            comparable([blank(), blank(), blank(encoding="fire", **change)])
        assert "\n" not in str(caught.value)

    def test_a_file_does_not_make_a_difference(self, tmp_path: Path) -> None:
        grid = blank(budget={"betas": (0.9, 0.98)})
        grid.save(tmp_path / "grid.json")
        comparable([grid, Grid.load(tmp_path / "grid.json")])


class TestFile:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(count=st.integers(0, 900), seed=st.integers(0, 99))
    def test_round_trip_is_exact(self, tmp_path: Path, count: int, seed: int) -> None:
        grid = blank(extrapolation="yarn", scoring={"threshold": 0.125})
        grid.add(*scored(count, seed=seed))
        grid.blocks_done = int(grid.total.min())
        grid.save(tmp_path / "grid.json")
        again = Grid.load(tmp_path / "grid.json")
        assert again.content() == grid.content()
        assert again.name == "tape+yarn" and again.scoring == {"threshold": 0.125}
        for field in ("exact", "total", "right_sum", "first_wrong_sum"):
            assert np.array_equal(getattr(again, field), getattr(grid, field)), field
            assert getattr(again, field).dtype == getattr(grid, field).dtype, field
        again.add(*scored(50, seed=3))  # scoring goes on from a file as if it had not stopped
        grid.add(*scored(50, seed=3))
        assert again.content() == grid.content()

    def test_missing_means_are_null(self, tmp_path: Path) -> None:
        blank().save(tmp_path / "grid.json")
        content = json.loads((tmp_path / "grid.json").read_text())
        assert content["schema"] == 1 and content["kind"] == "grid"
        assert content["right_share"][0][0] is None and content["total"][0][0] == 0

    def test_a_row_of_cells_is_a_line(self, tmp_path: Path) -> None:
        blank().save(tmp_path / "grid.json")
        assert "\n  [0, 0, 0, 0],\n" in (tmp_path / "grid.json").read_text()

    CORRUPT: tuple[tuple[str, object, str], ...] = (
        ("kind", "metrics", "is not a grid"),
        ("schema", 2, "schema 2"),
        ("extra", 1, "'extra' is unknown"),
        ("encoding", 3, "'encoding' must be text"),
        ("extrapolation", "", "'extrapolation' must be text"),
        ("seed", -1, "'seed' must be an integer from 0"),
        ("seed", True, "'seed' must be an integer"),
        ("blocks_done", 1.0, "'blocks_done' must be an integer"),
        ("blocks_done", 99, "'total' disagrees with 'blocks_done'"),
        ("trained_digits", 0, "'trained_digits' must be an integer from 1 to 4"),
        ("trained_digits", 5, "'trained_digits' must be an integer from 1 to 4"),
        ("budget", [], "'budget' must be an object"),
        ("budget", {"rate": float("nan")}, "not finite"),
        ("evaluation", {}, "'evaluation.task' must be text"),
        ("evaluation", {**EVALUATION, "max_digits": 5}, "5 rows of 5"),
        ("evaluation", {**EVALUATION, "problems_per_cell": 0}, "problems_per_cell"),
        ("evaluation", {**EVALUATION, "problems_per_cell": 9}, "'total' must be .* 0 to 9"),
        ("total", [[10] * 4] * 3, "'total' must be 4 rows of 4"),
        ("exact", [[1] * 4] * 3 + [[1] * 3], "'exact' must be 4 rows of 4"),
        ("exact", [[-1] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[0.5] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[float("nan")] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[None] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[11] * 4] * 4, "more exact answers than problems"),
        ("total", [[0] * 4] * 4, "more exact answers than problems"),
        ("right_share", [[None] * 4] * 4, "'right_share' must be numbers"),
        ("right_share", [[float("nan")] * 4] * 4, "'right_share' must lie between"),
        ("right_share", [[1.5] * 4] * 4, "'right_share' must lie between"),
        ("right_share", [[0.1] * 4] * 4, "'right_share' disagrees with 'exact'"),
        ("first_wrong", [[-2] * 4] * 4, "'first_wrong' must lie between"),
        ("first_wrong", [[1e300] * 4] * 4, "'first_wrong' must lie between"),
        ("first_wrong", [[True] * 4] * 4, "'first_wrong' must be numbers"),
    )

    @pytest.mark.parametrize(("key", "value", "says"), CORRUPT)
    def test_corrupt_entries(self, tmp_path: Path, key: str, value: object, says: str) -> None:
        content = self.content()
        content[key] = value
        with pytest.raises(Failure, match=says) as caught:
            self.load(tmp_path, json.dumps(content))
        assert "grid.json" in str(caught.value) and "\n" not in str(caught.value)

    @pytest.mark.parametrize("key", sorted(blank().content()))
    def test_every_entry_is_needed(self, tmp_path: Path, key: str) -> None:
        content = self.content()
        del content[key]
        with pytest.raises(Failure, match=r"grid\.json"):
            self.load(tmp_path, json.dumps(content))

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", "[" * 100_000, "9" * 5000])
    def test_what_is_no_grid_at_all(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(Failure, match=r"grid\.json"):
            self.load(tmp_path, text)

    def test_a_mean_over_nothing(self, tmp_path: Path) -> None:
        content = blank().content()
        content["right_share"][0][0] = 0.5
        with pytest.raises(Failure, match="mean over nothing"):
            self.load(tmp_path, json.dumps(content))

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(Failure, match=r"cannot read .*grid\.json"):
            Grid.load(tmp_path / "grid.json")

    @settings(
        max_examples=150,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(data=st.data())
    def test_any_value_anywhere_loads_or_fails_in_words(
        self, tmp_path: Path, data: st.DataObject
    ) -> None:
        content = self.content()
        holder, key = data.draw(st.sampled_from(list(places(content))))
        values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
        holder[key] = data.draw(values | st.lists(values, max_size=4) | st.just({}))
        self.loads_or_fails(tmp_path, json.dumps(content).encode())

    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(start=st.integers(0, 1200), length=st.integers(0, 40), noise=st.binary(max_size=8))
    def test_any_damage_loads_or_fails_in_words(
        self, tmp_path: Path, start: int, length: int, noise: bytes
    ) -> None:
        text = json.dumps(self.content()).encode()
        self.loads_or_fails(tmp_path, text[:start] + noise + text[start + length :])

    @staticmethod
    def content() -> dict[str, Any]:
        return deepcopy(filled([[3] * 4] * 4, total=10).content())

    @staticmethod
    def load(folder: Path, text: str) -> Grid:
        (folder / "grid.json").write_text(text)
        return Grid.load(folder / "grid.json")

    @staticmethod
    def loads_or_fails(folder: Path, text: bytes) -> None:
        path = folder / "grid.json"
        path.write_bytes(text)
        try:
            grid = Grid.load(path)
        except Failure as failure:
            assert str(path) in str(failure)
        else:  # what loads is sound: it can be saved and gives means
            grid.save(path)
            assert Grid.load(path).content() == grid.content()
            assert all(0 <= (grid.mean(region).value or 0) <= 1 for region in REGIONS)


def places(value: object) -> Any:
    """Every (holder, key) inside nested lists and dicts."""
    inside = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else inside:
        yield value, key
        yield from places(item)
