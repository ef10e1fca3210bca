"""Which runs stand in one figure, and what is said where they cannot."""

import shutil
from pathlib import Path

import pytest

from tests.suite.tiny import contents, done, refused, untouched


def another_preset(root: Path) -> None:
    """The same runs, as if they were of paper-20 too."""
    shutil.copytree(root / "mini", root / "paper-20")
    for file in (root / "paper-20").glob("*/*/*.json"):
        file.write_text(file.read_text().replace('"mini"', '"paper-20"'))


def test_the_one_preset_is_found(comparison: Path) -> None:
    drawn = done("heatmap", "--compare", "fire,rope")
    assert drawn.out == "runs/mini/fire-rope.png\n" and drawn.err == ""
    assert Path("runs/mini/fire-rope.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_the_ending_says_how_it_is_drawn(comparison: Path, ending: str) -> None:
    done("heatmap", "--compare", "rope", "--seed", 1, "--out", f"new/map.{ending}")
    start = {"svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert Path(f"new/map.{ending}").read_bytes().startswith(start)


def test_missing_runs_name_the_commands_that_make_them(comparison: Path) -> None:
    with untouched(comparison):
        told = refused("heatmap", "--compare", "fire,nope,tape,tape+yarn")
    assert "tape-arith train --pe nope --preset mini" in told
    assert "tape-arith train --pe tape --preset mini" in told  # scored with yarn only
    assert "--pe fire" not in told and "--pe tape+yarn" not in told
    assert "paper-20" in refused("heatmap", "--compare", "fire", "--preset", "paper-20")
    assert "tape-arith train --pe fire" in refused("heatmap", "--compare", "fire", "--runs", "no")


def test_an_unknown_preset_is_not_a_missing_run(comparison: Path) -> None:
    told = refused("heatmap", "--compare", "fire", "--preset", "minni")
    assert "unknown preset 'minni': did you mean 'mini'?" in told


def test_runs_in_several_presets(comparison: Path) -> None:
    another_preset(comparison / "runs")
    for command in (("heatmap", "--compare", "fire,rope"), ("table",)):
        told = refused(*command)
        assert "mini, paper-20" in told and "--preset" in told
    done("heatmap", "--compare", "fire,rope", "--preset", "paper-20")
    assert "fire" in done("table", "--preset", "mini").out
    # Only one preset holds all that is asked for: no question to ask.
    shutil.rmtree(comparison / "runs/paper-20/fire")
    assert done("heatmap", "--compare", "fire,rope").out.startswith("runs/mini/")


def test_another_ending(comparison: Path) -> None:
    with untouched(comparison):
        for name in ("map.jpg", "map", ".png"):
            told = refused("heatmap", "--compare", "fire", "--out", name)
            assert ".png, .svg or .pdf" in told


def test_a_seed_that_is_not_there(comparison: Path) -> None:
    assert "seed 7" in refused("heatmap", "--compare", "fire", "--seed", 7)


def test_another_evaluation_set_stays_out(comparison: Path) -> None:
    file = comparison / "runs/mini/fire/seed-0/grid.json"
    file.write_text(file.read_text().replace('"sha256": "', '"sha256": "0'))
    with untouched(comparison):
        assert "evaluation sha256" in refused("heatmap", "--compare", "fire,rope")


def test_a_grid_to_other_lengths_is_not_in_the_way(comparison: Path) -> None:
    done("score", "runs/mini/fire/seed-0", "--max-digits", 4)
    assert "runs/mini/fire/seed-0/grid-to-4.json" in contents(comparison)
    done("heatmap", "--compare", "fire,rope")


def test_a_table_of_nothing(here: Path) -> None:
    assert "tape-arith train" in refused("table")
    assert "markdown, csv, json" in refused("table", "--format", "xml")
