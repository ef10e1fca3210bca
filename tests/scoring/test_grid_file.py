"""The file of a grid: what it gives back, and what it refuses."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arith.errors import Corrupt, Failure
from arith.scoring import grid_file
from arith.scoring.comparable import comparable
from arith.scoring.grid import Grid
from arith.scoring.regions import REGIONS
from tests.scoring.made import EVALUATION, blank, filled, scored

PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("*/*/*/grid*.json"))


class TestFile:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(count=st.integers(0, 900), seed=st.integers(0, 99))
    def test_round_trip_is_exact(self, tmp_path: Path, count: int, seed: int) -> None:
        grid = blank(extrapolation="yarn", scoring={"threshold": 0.125}, settings={"clip": 2.5})
        grid.add(*scored(count, seed=seed))
        grid.blocks_done = int(grid.total.min())
        grid_file.save(grid, tmp_path / "grid.json")
        again = grid_file.load(tmp_path / "grid.json")
        assert again.content() == grid.content()
        assert again.name == "tape+yarn" and again.scoring == {"threshold": 0.125}
        assert again.settings == {"clip": 2.5}
        for field in ("exact", "total", "right_sum", "first_wrong_sum"):
            assert np.array_equal(getattr(again, field), getattr(grid, field)), field
            assert getattr(again, field).dtype == getattr(grid, field).dtype, field
        again.add(*scored(50, seed=3))  # scoring goes on from a file as if it had not stopped
        grid.add(*scored(50, seed=3))
        assert again.content() == grid.content()

    def test_a_file_does_not_make_a_difference(self, tmp_path: Path) -> None:
        grid = blank(budget={"betas": (0.9, 0.98)})
        grid_file.save(grid, tmp_path / "grid.json")
        comparable([grid, grid_file.load(tmp_path / "grid.json")])

    def test_settings_are_there_only_where_the_preset_was_changed(self, tmp_path: Path) -> None:
        grid_file.save(blank(), tmp_path / "grid.json")
        assert "settings" not in json.loads((tmp_path / "grid.json").read_text())
        assert grid_file.load(tmp_path / "grid.json").settings == {}

    @pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parts[-4:-1])
    def test_published_grids_are_read_and_written_unchanged(
        self, tmp_path: Path, path: Path
    ) -> None:
        grid_file.save(grid_file.load(path), tmp_path / "grid.json")
        again = json.loads((tmp_path / "grid.json").read_text())
        marks = {"schema": again["schema"], "checksum": again["checksum"]}
        assert again == json.loads(path.read_text()) | marks

    def test_missing_means_are_null(self, tmp_path: Path) -> None:
        grid_file.save(blank(), tmp_path / "grid.json")
        content = json.loads((tmp_path / "grid.json").read_text())
        assert content["schema"] == 2 and content["kind"] == "grid"
        assert content["right_share"][0][0] is None and content["total"][0][0] == 0

    def test_a_row_of_cells_is_a_line(self, tmp_path: Path) -> None:
        grid_file.save(blank(), tmp_path / "grid.json")
        assert "\n  [0, 0, 0, 0],\n" in (tmp_path / "grid.json").read_text()

    CORRUPT: tuple[tuple[str, object, str], ...] = (
        ("kind", "metrics", "is not a grid"),
        ("schema", 3, "schema 3; this version reads schemas 1 to 2"),
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
        ("settings", [], "'settings' must be an object"),
        ("settings", {"task": None}, "'settings.task' must be a number or text"),
        ("settings", {"steps": True}, "'settings.steps' must be a number or text"),
        ("budget", {"rate": float("nan")}, "NaN is no number"),
        ("evaluation", {}, "'evaluation.task' must be text"),
        ("evaluation", {**EVALUATION, "max_digits": 5}, "5 rows of 5"),
        ("evaluation", {**EVALUATION, "problems_per_cell": 0}, "problems_per_cell"),
        ("evaluation", {**EVALUATION, "problems_per_cell": 9}, "'total' must be .* 0 to 9"),
        ("total", [[10] * 4] * 3, "'total' must be 4 rows of 4"),
        ("exact", [[1] * 4] * 3 + [[1] * 3], "'exact' must be 4 rows of 4"),
        ("exact", [[-1] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[0.5] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[float("nan")] * 4] * 4, "NaN is no number"),
        ("exact", [[None] * 4] * 4, "'exact' must be an integer"),
        ("exact", [[11] * 4] * 4, "more exact answers than problems"),
        ("total", [[0] * 4] * 4, "more exact answers than problems"),
        ("right_share", [[None] * 4] * 4, "'right_share' must be numbers"),
        ("right_share", [[float("nan")] * 4] * 4, "NaN is no number"),
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

    @pytest.mark.parametrize("key", sorted({"schema", *blank().content()}))
    def test_every_entry_is_needed(self, tmp_path: Path, key: str) -> None:
        content = self.content()
        del content[key]
        with pytest.raises(Failure, match=r"grid\.json"):
            self.load(tmp_path, json.dumps(content))

    @pytest.mark.parametrize("text", ["[]", "null"])
    def test_a_file_of_another_kind(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(Failure, match=r"grid\.json is not a grid of tape-arith"):
            self.load(tmp_path, text)

    @pytest.mark.parametrize("text", ["", "{", "\x00", "[" * 100_000, "9" * 5000])
    def test_what_is_no_grid_at_all(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(Corrupt, match=r"grid\.json.*; put back a copy .* with --fresh"):
            self.load(tmp_path, text)

    def test_a_byte_that_is_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "grid.json"
        grid_file.save(blank(), path)
        path.write_bytes(path.read_bytes().replace(b"evaluation", b"ev\xffluation", 1))
        with pytest.raises(Corrupt, match=r"not UTF-8 .*; put back a copy"):
            grid_file.load(path)

    def test_one_of_a_newer_version_is_not_damaged(self, tmp_path: Path) -> None:
        with pytest.raises(Failure, match="has schema 99; this version reads") as caught:
            self.load(tmp_path, json.dumps({**self.content(), "schema": 99}))
        assert not isinstance(caught.value, Corrupt)

    def test_a_mean_over_nothing(self, tmp_path: Path) -> None:
        content = {"schema": 1, **blank().content()}
        content["right_share"][0][0] = 0.5
        with pytest.raises(Failure, match="mean over nothing"):
            self.load(tmp_path, json.dumps(content))

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(Failure, match=r"cannot read .*grid\.json"):
            grid_file.load(tmp_path / "grid.json")

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
        grid = filled([[3] * 4] * 4, total=10, settings={"task": "subtraction", "steps": 9})
        return {"schema": 1, **deepcopy(grid.content())}  # the last schema without a checksum

    @staticmethod
    def load(folder: Path, text: str) -> Grid:
        (folder / "grid.json").write_text(text)
        return grid_file.load(folder / "grid.json")

    @staticmethod
    def loads_or_fails(folder: Path, text: bytes) -> None:
        path = folder / "grid.json"
        path.write_bytes(text)
        try:
            grid = grid_file.load(path)
        except Failure as failure:
            assert str(path) in str(failure)
        else:  # what loads is sound: it can be saved and gives means
            grid_file.save(grid, path)
            assert grid_file.load(path).content() == grid.content()
            assert all(0 <= (grid.mean(region).value or 0) <= 1 for region in REGIONS)


def places(value: object) -> Any:
    """Every (holder, key) inside nested lists and dicts."""
    inside = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else inside:
        yield value, key
        yield from places(item)
