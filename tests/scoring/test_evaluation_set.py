"""Grids to other lengths than the preset's: found, drawn and named as they are asked for."""

import json
from pathlib import Path

from tape_arith.arith.compare.panels import select_panels
from tape_arith.arith.data.bucket import CARRY
from tape_arith.arith.figures.captions import footnote
from tape_arith.arith.runs.folder import RunFolder, find_grids
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid
from tests.helpers.tiny_runs import call, done, refused, untouched

FIRE, ROPE = (Path(f"runs/mini/{name}/seed-0") for name in ("fire", "rope"))


def test_the_preset_s_own_length_is_the_usual_grid(comparison: Path) -> None:
    with untouched(comparison):
        told = done("score", FIRE, "--max-digits", 3).out
        assert told.startswith("fire seed 0 to 3 digits: out of distribution ")
        named = done("leaderboard", "--max-digits", 3)
        assert named.out == done("leaderboard").out


def test_figures_of_longer_operands(comparison: Path) -> None:
    usual = done("leaderboard", "--format", "json").out
    for run in (FIRE, ROPE):
        told = done("score", run, "--max-digits", 4).out
        assert told.startswith(f"{run.parent.name} seed 0 to 4 digits: out of distribution ")
    assert done("leaderboard", "--format", "json").out == usual

    ([fire], [rope]), _ = select_panels(
        Path("runs"), "fire,rope", evaluation_set=EvaluationSet(max_digits=4)
    )
    assert fire.content() == Grid.load(FIRE / "grid-to-4.json").content()
    assert fire.exact.shape == (4, 4)
    assert "trained to 2 digits and tested to 4 (preset" in footnote([[fire], [rope]])

    shown = done("heatmap", "--compare", "fire,rope", "--max-digits", 4)
    assert shown.out == "runs/mini/fire-rope-to-4.png\n"
    table = done("leaderboard", "--max-digits", 4)
    assert "tested to 4 (preset" in table.out and "| fire | relative bias | 1 (" in table.out
    assert "fire seed 1; rope seed 1; tape seeds 0, 1: not scored to 4 digits yet" in table.err
    board = json.loads(done("leaderboard", "--max-digits", 4, "--format", "json").out)
    assert board["max_digits"] == 4
    assert done("report", "--max-digits", 4).out == "runs/mini/report-to-4.html\n"
    page = Path("runs/mini/report-to-4.html").read_text("utf-8")
    for command in (
        "tape-arith report --preset mini --max-digits 4",
        f"tape-arith score {FIRE} --max-digits 4",
    ):
        assert command in page
    done("report")
    assert "--max-digits" not in Path("runs/mini/report.html").read_text("utf-8")


def test_what_is_missing_is_told_with_its_command(comparison: Path) -> None:
    done("score", FIRE, "--max-digits", 4)
    with untouched(comparison):
        told = refused("heatmap", "--compare", "fire,rope", "--max-digits", 4)
        assert "no scored run of rope in runs/mini to 4 digits" in told
        assert f"tape-arith score {ROPE} --max-digits 4" in told
        told = refused("leaderboard", "--max-digits", 5)
        assert "no scored run in runs to 5 digits: tape-arith score RUN --max-digits 5" in told


def test_longer_hard_sums_are_judged_by_the_usual_ones(comparison: Path) -> None:
    done("score", FIRE, "--split", CARRY, "--max-digits", 4)
    [grid] = find_grids(Path("runs"), evaluation_set=EvaluationSet(CARRY, 4))
    assert (grid.split, grid.max_digits) == (CARRY, 4)
    assert grid.usual is not None
    assert grid.usual.content() == Grid.load(FIRE / "grid.json").content()
    assert find_grids(Path("runs"), evaluation_set=EvaluationSet(CARRY)) == []
    folder = RunFolder(FIRE)
    assert folder.has_grid(EvaluationSet(CARRY, 4)) and folder.has_grid(DEFAULT_SET)
    assert not folder.has_grid(EvaluationSet(CARRY)) and not folder.has_grid(
        EvaluationSet(max_digits=4)
    )

    done("score", ROPE, "--with", "yarn", "--max-digits", 4)
    folder = RunFolder(ROPE)
    assert folder.has_grid(EvaluationSet(max_digits=4)) and not folder.has_grid(
        EvaluationSet(max_digits=5)
    )
    for file in ROPE.glob("grid*.json"):
        if "-to-" not in file.name:
            file.unlink()
    assert folder.has_grid(EvaluationSet(max_digits=4)) and not folder.has_grid(DEFAULT_SET)


def test_a_corrupt_grid_of_other_lengths_is_not_in_the_way(comparison: Path) -> None:
    for run in (FIRE, ROPE):
        done("score", run, "--max-digits", 4)
    (FIRE / "grid-to-4.json").write_text("{")
    evaluation_set = "heatmap", "--compare", "fire,rope"
    assert "grid-to-4.json" in done(*evaluation_set).err
    result = call(*evaluation_set, "--max-digits", 4)
    assert result.code == 2 and "left out: " in result.err and "grid-to-4.json" in result.err
