"""Grids to other lengths than the preset's: found, drawn and named by their evaluation set."""

from pathlib import Path

import pytest

from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.data.bucket import CARRY
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.find import find_grids
from tests.helpers.tiny_runs import done, untouched

FIRE, ROPE = (Path(f"runs/mini/{name}/seed-0") for name in ("fire", "rope"))
TO_4 = ("--max-digits", 4)


@pytest.mark.usefixtures("uncomposed")
def test_figures_of_longer_operands(comparison: Path) -> None:
    with untouched(comparison):  # the preset's own length is the usual grid
        line = done("score", FIRE, "--max-digits", 3).out
        assert "3 digits:" in line
        usual = done("leaderboard", "--max-digits", 3).out
    for run in (FIRE, ROPE):
        done("score", run, *TO_4)
    assert done("leaderboard").out == usual

    (fire, _), _ = Selection(
        Path("runs"), "fire,rope", evaluation_set=EvaluationSet(max_digits=4)
    ).panels()
    assert fire.first.content() == Grid.load(FIRE / "grid-to-4.json").content()
    assert fire.exact.shape == (4, 4)
    drawn = done("heatmap", "--compare", "fire,rope", *TO_4)
    assert drawn.out == "runs/mini/fire-rope-to-4.png\n"
    board = done("leaderboard", *TO_4)
    assert "to 4" in board.out and "fire seed 1;" in board.err
    assert done("report", *TO_4).out == "runs/mini/report-to-4.html\n"
    page = Path("runs/mini/report-to-4.html").read_text("utf-8")
    assert f"{FIRE} --max-digits 4" in page

    # Longer hard sums are judged by the usual problems.
    done("score", FIRE, "--split", CARRY, *TO_4)
    [grid] = find_grids(Path("runs"), evaluation_set=EvaluationSet(CARRY, 4))
    assert (grid.split, grid.max_digits) == (CARRY, 4)
    assert grid.standard is not None
    assert grid.standard.content() == Grid.load(FIRE / "grid.json").content()
    assert find_grids(Path("runs"), evaluation_set=EvaluationSet(CARRY)) == []
