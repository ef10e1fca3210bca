"""The file of a grid gives back what was saved. Damaged ones: `tests/test_documents.py`."""

import json
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape_arith.arith.scoring import grid_file
from tape_arith.arith.scoring.comparable import check_comparable
from tests.helpers.made_grids import blank, scored

RESULTS = Path(__file__).parents[2] / "results"


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(count=st.integers(0, 900), seed=st.integers(0, 99))
def test_round_trip_is_exact(tmp_path: Path, count: int, seed: int) -> None:
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
    check_comparable([grid, again])


def test_published_grids_are_written_as_they_are_read(tmp_path: Path) -> None:
    paths = sorted(RESULTS.rglob("grid*.json"))
    assert len(paths) > 400
    for path in paths[::5]:
        grid_file.save(grid_file.load(path), tmp_path / "grid.json")
        assert (tmp_path / "grid.json").read_text() == path.read_text(), path


def test_a_row_of_cells_is_a_line(tmp_path: Path) -> None:
    grid_file.save(blank(), tmp_path / "grid.json")
    text = (tmp_path / "grid.json").read_text()
    assert "\n  [0, 0, 0, 0],\n" in text and "\n  [null, null, null, null],\n" in text
    assert "settings" not in json.loads(text)  # there only if the preset was changed
