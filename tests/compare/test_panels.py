"""Which runs stand in one figure, and what is said where they cannot."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.compare.order import in_order, in_words
from tape_arith.arith.compare.panels import panels, selection
from tape_arith.arith.figures.captions import footnote
from tape_arith.arith.runs.record import load_preset
from tape_arith.arith.scoring import grid_file
from tape_arith.models.names.parse import parse_list
from tests.helpers.sealing import replaced, resealed
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched


def another_preset(root: Path) -> None:
    """The same runs, as if they were of paper-20 too."""
    shutil.copytree(root / "mini", root / "paper-20")
    for file in (root / "paper-20").glob("*/*/*.json"):
        if '"mini"' in file.read_text():
            replaced(file, '"mini"', '"paper-20"')


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
    # Scored with yarn only: the run is there, and with other settings it could not be trained anew.
    assert "tape-arith score runs/mini/tape/seed-0" in told and "--pe tape" not in told
    assert "--pe fire" not in told and "--pe tape+yarn" not in told
    told = refused("heatmap", "--compare", "rope+yarn")
    assert "tape-arith score runs/mini/rope/seed-0 --with yarn" in told
    Path("runs/mini/tape/seed-0/weights/final.safetensors").rename(
        "runs/mini/tape/seed-0/weights/latest.safetensors"
    )
    assert "tape-arith train runs/mini/tape/seed-0" in refused("heatmap", "--compare", "tape")
    assert "paper-20" in refused("heatmap", "--compare", "fire", "--preset", "paper-20")
    assert "tape-arith train --pe fire" in refused("heatmap", "--compare", "fire", "--runs", "no")


def test_another_way_of_scoring_does_not_stand_in_for_what_is_missing(comparison: Path) -> None:
    done("score", "runs/mini/rope/seed-0", "--with", "yarn")
    shutil.rmtree(comparison / "runs/mini/fire")
    assert "tape-arith train --pe fire" in refused("heatmap", "--compare", "rope,fire")


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


def test_the_folder_of_a_preset_is_not_that_of_runs(comparison: Path) -> None:
    for command in (("heatmap", "--compare", "fire,rope"), ("table",), ("leaderboard",)):
        told = refused(*command, "--runs", "runs/mini")
        assert "runs/mini is the folder of one preset: name the one above it, --runs runs" in told
        assert "tape-arith train" not in told


def test_what_is_missing_of_a_carried_run_is_no_command_that_is_refused(comparison: Path) -> None:
    shutil.rmtree(comparison / "runs/mini/rope/seed-0/weights")
    with untouched(comparison):
        for command in (("--compare", "rope,rope+yarn"), ("--compare", "rope", "--split", "carry")):
            told = refused("heatmap", *command)
            assert "its weights are not here" in told and "`tape-arith" not in told


def test_another_ending(comparison: Path) -> None:
    with untouched(comparison):
        for name in ("map.jpg", "map", ".png"):
            told = refused("heatmap", "--compare", "fire", "--out", name)
            assert ".png, .svg or .pdf" in told


def test_a_seed_that_is_not_there(comparison: Path) -> None:
    assert "seed 7" in refused("heatmap", "--compare", "fire", "--seed", 7)


def test_another_evaluation_set_stays_out(comparison: Path) -> None:
    file = comparison / "runs/mini/fire/seed-0/grid.json"
    sha256 = grid_file.load(file).evaluation["sha256"]
    replaced(file, sha256, sha256[::-1])
    with untouched(comparison):
        assert "evaluation set " in refused("heatmap", "--compare", "fire,rope")


def test_a_grid_to_other_lengths_is_not_in_the_way(comparison: Path) -> None:
    done("score", "runs/mini/fire/seed-0", "--max-digits", 4)
    assert "runs/mini/fire/seed-0/grid-to-4.json" in contents(comparison)
    done("heatmap", "--compare", "fire,rope")


def test_a_grid_s_reach_is_read_from_the_grid(comparison: Path) -> None:
    folder = comparison / "runs/mini/fire/seed-0"
    done("score", folder, "--max-digits", 4)
    # Whatever the files are called.
    (folder / "grid-to-4.json").rename(folder / "grid.json.new")
    (folder / "grid.json").rename(folder / "grid-to-3.json")
    (folder / "grid.json.new").rename(folder / "grid.json")
    done("heatmap", "--compare", "fire,rope")
    assert "| fire | 2 |" in done("table").out
    (folder / "grid-to-3.json").unlink()
    assert "| fire | 1 (" in done("table").out


def test_a_corrupt_grid_does_not_stop_the_others(comparison: Path) -> None:
    file = comparison / "runs/mini/tape/seed-1/grid+yarn.json"
    file.write_text("{")
    with untouched(comparison):
        assert done("table", "--compare", "fire,rope").err == ""
        note = f"note: left out: {file.relative_to(comparison)} is corrupt"
        assert note in done("table").err
    done("heatmap", "--compare", "fire,rope")
    # `run` draws what it was asked for.
    done("run", "--pe", "fire,rope", "--seeds", "0", *settings())


def test_a_corrupt_grid_beside_the_one_that_is_asked_for_is_told(comparison: Path) -> None:
    file = comparison / "runs/mini/rope/seed-0/grid+yarn.json"
    file.write_text("{")
    told = done("heatmap", "--compare", "fire,rope").err
    assert told.startswith("note: ") and told.count("\n") == 1
    assert str(file.relative_to(comparison)) in told
    assert "rope+yarn" in refused("heatmap", "--compare", "fire,rope,rope+yarn", after=True)


def test_a_grid_without_its_record_is_shown_where_it_is_the_only_one(comparison: Path) -> None:
    folder = comparison / "runs/mini/fire/seed-0"
    done("score", folder, "--max-digits", 4)
    (folder / "run.json").unlink()
    with untouched(comparison):
        result = done("table", "--compare", "fire,rope")
        assert "left out: runs/mini/fire/seed-0: its run.json" in result.err
        assert "| fire | 1 (" in result.out
    (folder / "grid-to-4.json").unlink()
    assert "| fire | 2 |" in done("table", "--compare", "fire,rope").out


def test_the_caption_tells_what_was_set(comparison: Path) -> None:
    """The comparison's preset is mini with thirteen settings of its own."""
    shown = panels(Path("runs"), parse_list("fire,tape+yarn"))
    said = "(preset mini with trained_digits=2, tested_digits=3, num_problems=64, num_layers=1 and "
    assert said in footnote(shown)
    changed = {"steps": 5, "learning_rate": 0.002}
    for name in ("fire", "rope"):
        done("train", "--pe", name, "--out", "new", *settings(**changed))
    assert all(
        grid.settings["steps"] == 5 and grid.settings["learning_rate"] == 0.002
        for panel in panels(Path("new"), parse_list("fire,rope"))
        for grid in panel
    )


def test_grids_of_two_task_versions_stay_apart(comparison: Path) -> None:
    for file in (comparison / "runs/mini/fire").glob("*/grid.json"):
        replaced(file, '"version": 1', '"version": 2')
    with untouched(comparison):
        assert "version 1, not 2" in refused("heatmap", "--compare", "fire,rope")
    done("heatmap", "--compare", "fire")


def test_all_of_them(comparison: Path) -> None:
    """Best first, and last what did not converge: at this size, all of them, by name."""
    drawn = done("heatmap", "--compare", "all", "--out", "all.svg")
    assert drawn.err == ""
    told = " ".join(re.findall(r"<!-- (.*?) -->", Path("all.svg").read_text()))
    places = [
        told.index(name) for name in ("fire", "rope", "tape+yarn", "Order: not ranked (fire, ")
    ]
    assert places == sorted(places)
    assert done("heatmap", "--compare", "all").out == "runs/mini/fire-rope-tape+yarn.png\n"


def test_all_of_one_seed(comparison: Path) -> None:
    shutil.rmtree(comparison / "runs/mini/fire/seed-1")
    assert len(selection(Path("runs"), "all")) == 3
    chosen = selection(Path("runs"), "all", seed=1)
    assert [panel[0].name for panel in chosen] == ["rope", "tape+yarn"]
    done("heatmap", "--compare", "all", "--seed", 1)
    assert "no scored run of seed 7" in refused("heatmap", "--compare", "all", "--seed", 7)


def test_all_leaves_out_what_may_not_be_compared(comparison: Path) -> None:
    """Where names are given, the same is refused: nothing that was asked for is dropped."""
    for file in (comparison / "runs/mini/fire").glob("*/grid.json"):
        replaced(file, '"version": 1', '"version": 2')
    told = done("table")
    assert told.err == "note: left out: fire seeds 0, 1: version 2, not 1\n"
    assert "| rope |" in told.out and "| fire |" not in told.out
    assert done("heatmap", "--compare", "all").err == told.err
    assert "version 1, not 2" in refused("table", "--compare", "fire,rope")


def test_only_the_settings_that_differ_are_named(comparison: Path) -> None:
    shutil.rmtree("runs/mini/fire")
    done("train", "--pe", "fire", *settings(learning_rate=0.002, clip=0.25))
    own = load_preset("mini").clip  # which the others do not say, for they have it
    assert done("table").err == (
        "note: left out: fire seed 0: other settings (learning_rate 0.002, not 0.001; "
        f"clip 0.25, not {own:g})\n"
    )
    for file in Path("runs/mini/fire").glob("*/grid.json"):  # an older version told no settings
        content = json.loads(file.read_text())
        del content["settings"]
        file.write_bytes(resealed(json.dumps(content).encode()))
    hashes = [
        grid_file.load(Path("runs/mini", name, "seed-0/grid.json")).budget["config_sha256"][:8]
        for name in ("fire", "rope")
    ]
    assert f"other settings (config {hashes[0]}, not {hashes[1]})" in done("table").err


def test_where_nothing_is_out_of_distribution(here: Path) -> None:
    told = done("train", "--pe", "rope", *settings(tested_digits=2)).out
    assert "nothing is out of distribution (trained and tested to 2 digits), in dist" in told
    assert "incomplete" not in told


def test_a_preset_that_is_no_name_is_refused_with_its_file(comparison: Path) -> None:
    file = comparison / "runs/mini/fire/seed-0/grid.json"
    replaced(file, '"preset": "mini"', '"preset": "../x"')
    for command in (("table",), ("leaderboard",), ("heatmap", "--compare", "fire")):
        assert "fire/seed-0/grid.json is corrupt: 'preset' must match" in done(*command).err


def test_names_in_their_order_or_sorted(comparison: Path) -> None:
    given = selection(Path("runs"), "rope,fire")
    assert [panel[0].name for panel in given] == ["rope", "fire"]
    for panel in given:
        for grid in panel:  # as if both had fit, and fire had gone further
            grid.exact[:] = np.where(
                grid.mask("in_distribution"), grid.total, panel[0].name == "fire"
            )
    assert [panel[0].name for panel in in_order(given)] == ["fire", "rope"]
    assert in_words(given) == "Order: by mean out of distribution."
    assert done("heatmap", "--compare", "rope,fire", "--sort").out == "runs/mini/fire-rope.png\n"
    assert done("heatmap", "--compare", "rope,fire").out == "runs/mini/rope-fire.png\n"


def test_a_table_of_nothing(here: Path) -> None:
    assert "tape-arith train --pe rope makes one" in refused("table")
    told = refused("leaderboard", "--runs", "m", "--preset", "paper-20")
    assert "of paper-20 in m: tape-arith train --pe rope --preset paper-20 --out m makes" in told
    told = refused("table", "--split", "carry")
    assert "tape-arith score RUN --split carry makes one" in told
    assert "markdown, csv, latex, json" in refused("table", "--format", "xml")


@pytest.mark.parametrize("name", ["grid.json", "run.json"])
def test_one_corrupt_file_does_not_stop_the_others(here: Path, name: str) -> None:
    done("run", "--pe", "rope,fire", "--seeds", "0,1", *settings())
    corrupt = Path("runs/mini/rope/seed-1", name)
    corrupt.write_bytes(corrupt.read_bytes()[:100])
    for command in ("leaderboard", "list", *(["table"] if name == "grid.json" else [])):
        result = done(*command.split())
        assert f"{corrupt} is corrupt" in result.err + (result.out if command == "list" else "")
    sections = json.loads(done("leaderboard", "--format", "json").out)["sections"]
    seeds = {row["encoding"]: row["seeds"] for part in sections for row in part["rows"]}
    assert seeds["fire"] == [0, 1]
    assert seeds["rope"] == ([0] if name == "grid.json" else [0, 1])  # its grid is whole
