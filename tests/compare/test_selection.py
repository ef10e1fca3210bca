"""Which runs stand in one figure, and what is said where they cannot."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.compare.captions import footnote
from tape_arith.arith.compare.leaderboard import describe_order, sort_panels
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.errors import UsageError
from tape_arith.arith.grids.panel import panels_of
from tape_arith.arith.runs.run import Run
from tests.helpers.documents import edit, edit_machine, edit_text
from tests.helpers.made_grids import interrupt
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched

RUNS = Path("runs")
FIRE = RUNS / "mini/fire"


def as_version_2(folder: Path) -> None:
    """Change the grids in a folder, as if of another version of the task."""
    for file in folder.rglob("grid.json"):
        edit_text(file, '"version": 1', '"version": 2')


def test_missing_runs_name_the_commands_that_make_them(comparison: Path) -> None:
    with untouched(comparison):
        line = refused("heatmap", "--compare", "fire,nope,tape,tape+yarn")
    assert "tape-arith train --pe nope --preset mini" in line
    # Scored with yarn only: the run is there, and with other settings it could not be trained anew.
    assert "tape-arith score runs/mini/tape/seed-0" in line and "--pe tape" not in line
    assert "--pe fire" not in line and "--pe tape+yarn" not in line
    line = refused("heatmap", "--compare", "rope+yarn")
    assert "tape-arith score runs/mini/rope/seed-0 --with yarn" in line
    weights = RUNS / "mini/tape/seed-0/weights"
    (weights / "final.safetensors").rename(weights / "latest.safetensors")
    assert "tape-arith train runs/mini/tape/seed-0" in refused("heatmap", "--compare", "tape")
    assert "paper-20" in refused("heatmap", "--compare", "fire", "--preset", "paper-20")
    for command in ("heatmap", "curves"):
        line = refused(command, "--compare", "fire", "--preset", "mini@sotr")
        assert "unknown task 'sotr': did you mean 'sort'?" in line
    assert "tape-arith train --pe fire" in refused("heatmap", "--compare", "fire", "--runs", "no")
    done("score", "runs/mini/rope/seed-0", "--with", "yarn")
    shutil.rmtree(FIRE)  # another way of scoring does not stand in for it
    assert "tape-arith train --pe fire" in refused("heatmap", "--compare", "rope,fire")


def test_nothing_is_scored(here: Path) -> None:
    assert "tape-arith train --pe rope makes one" in refused("leaderboard")
    line = refused("leaderboard", "--runs", "m", "--preset", "paper-20")
    assert "of paper-20 in m: tape-arith train --pe rope --preset paper-20 --runs m makes" in line
    line = refused("leaderboard", "--runs", "m", "--preset", "mini", "--task", "sort:pad=false")
    assert "of mini@sort in m: tape-arith train --pe rope --preset mini@sort --runs m makes" in line
    line = refused("leaderboard", "--preset", "mini@sort", "--task", "copy")
    assert "--preset mini@sort and --task copy name two tasks" in line
    line = refused("leaderboard", "--split", "carry")
    assert "tape-arith score RUN --split carry makes one" in line


def test_one_preset(comparison: Path) -> None:
    assert "did you mean 'mini'?" in refused("heatmap", "--compare", "fire", "--preset", "minni")
    for command in (("heatmap", "--compare", "fire,rope"), ("leaderboard",)):
        line = refused(*command, "--runs", "runs/mini")
        assert "runs/mini is the folder of one preset: name that of all runs, --runs runs" in line
    shutil.copytree(RUNS / "mini", RUNS / "paper-20")
    for file in (RUNS / "paper-20").glob("*/*/*.json"):
        if '"mini"' in file.read_text():
            edit_text(file, '"mini"', '"paper-20"')
    for command in (("heatmap", "--compare", "fire,rope"), ("leaderboard",)):
        line = refused(*command)
        assert "mini, paper-20" in line and "--preset" in line
    assert Selection(RUNS, "fire,rope", "paper-20").panels()[0][0].preset == "paper-20"
    # Only one preset holds all that is asked for: no question to ask.
    shutil.rmtree(RUNS / "paper-20/fire")
    assert done("heatmap", "--compare", "fire,rope").out == "runs/mini/fire-rope.png\n"


def test_runs_without_weights_are_not_advised_to_be_scored(comparison: Path) -> None:
    shutil.rmtree(comparison / "runs/mini/rope/seed-0/weights")
    with untouched(comparison):
        for command in (("--compare", "rope,rope+yarn"), ("--compare", "rope", "--split", "carry")):
            line = refused("heatmap", *command)
            assert "its weights are not here" in line and "`tape-arith" not in line


def test_what_the_command_line_refuses(comparison: Path) -> None:
    with untouched(comparison):
        for name in ("map.jpg", "map", ".png"):
            line = refused("heatmap", "--compare", "fire", "--out", name)
            assert ".png, .svg or .pdf" in line
        assert "seed 7" in refused("heatmap", "--compare", "fire", "--seed", 7)
        assert "no scored run of seed 7" in refused("heatmap", "--compare", "all", "--seed", 7)
        assert "nothing to compare" in refused("heatmap", "--compare", ",")


def test_a_grid_s_reach_is_read_from_the_grid(comparison: Path) -> None:
    folder = FIRE / "seed-0"
    done("score", folder, "--max-digits", 4)
    assert "runs/mini/fire/seed-0/grid-to-4.json" in contents(comparison)
    # Whatever the files are called.
    (folder / "grid-to-4.json").rename(folder / "grid.json.new")
    (folder / "grid.json").rename(folder / "grid-to-3.json")
    (folder / "grid.json.new").rename(folder / "grid.json")
    assert len(Selection(RUNS, "fire,rope").panels()[0][0].seeds) == 2
    (folder / "grid-to-3.json").unlink()
    assert len(Selection(RUNS, "fire,rope").panels()[0][0].seeds) == 1


def test_a_grid_without_its_record_is_shown_if_it_is_the_only_one(comparison: Path) -> None:
    folder = FIRE / "seed-0"
    done("score", folder, "--max-digits", 4)
    (folder / "run.json").unlink()
    with untouched(comparison):
        result = done("leaderboard", "--compare", "fire,rope")
        assert "left out: cannot read runs/mini/fire/seed-0/run.json" in result.err
        assert "| FIRE | relative bias | 1 (" in result.out
    (folder / "grid-to-4.json").unlink()
    assert "| FIRE | relative bias | 2 |" in done("leaderboard", "--compare", "fire,rope").out


@pytest.mark.parametrize("name", ["grid.json", "run.json"])
def test_a_corrupt_file_does_not_stop_the_others(comparison: Path, name: str) -> None:
    file = Path("runs/mini/rope/seed-1", name)
    file.write_bytes(file.read_bytes()[:100])
    for command in (("leaderboard",), ("list",), ("curves", "--compare", "rope,fire", "--json")):
        result = done(*command)
        told = f"{file} is corrupt" in result.err + result.out
        assert told == (name == "run.json" or command[0] != "curves")
    sections = json.loads(done("leaderboard", "--format", "json").out)["sections"]
    seeds = {row["encoding"]: row["seeds"] for part in sections for row in part["rows"]}
    assert seeds["fire"] == [0, 1]
    assert seeds["rope"] == ([0] if name == "grid.json" else [0, 1])  # its grid is whole
    if name == "grid.json":  # `run` draws what it was asked for
        done("run", "--pe", "fire", "--seeds", "0", *settings())


def test_grids_that_differ_are_left_out_and_named(comparison: Path) -> None:
    as_version_2(FIRE / "seed-0")
    with untouched(comparison):
        (fire, _), excluded = Selection(RUNS, "fire,rope").panels()
        assert fire.seeds == (1,)
        assert excluded == [("fire seed 0", "version 2, not 1")]
    as_version_2(FIRE / "seed-1")
    result = done("leaderboard")
    assert result.err == "note: left out: fire seeds 0, 1: version 2, not 1\n"
    assert "| RoPE |" in result.out and "| FIRE |" not in result.out
    assert done("heatmap", "--compare", "all").err == result.err
    # An encoding that is asked for is never dropped.
    for command in ("heatmap", "leaderboard", "report"):
        line = refused(command, "--compare", "rope,fire")
        assert "cannot be in one figure" in line and "version" in line
    assert Selection(RUNS, "fire").panels()[0][0].seeds == (0, 1)


def test_runs_of_another_precision_are_left_out_and_named(comparison: Path) -> None:
    """Also a run whose first part was trained in another one; what is not known excludes none."""
    files = [RUNS / f"mini/{run}/run.json" for run in ("rope/seed-0", "rope/seed-1")]
    files += [FIRE / "seed-0/run.json", FIRE / "seed-1/run.json"]
    for file in files:
        edit_machine(file, dtype="bfloat16")
    edit_machine(files[2], dtype="float32")
    edit(files[3], machines=[])
    reason = "fire seed 0: trained in float32, not bfloat16"
    for command in (("leaderboard",), ("heatmap", "--pe", "all"), ("curves", "--pe", "rope,fire")):
        assert done(*command).err == f"note: left out: {reason}\n"
    grids = [Run(file.parent).grids()["grid"] for file in files]
    with pytest.raises(UsageError, match="trained in bfloat16, not float32"):
        panels_of([grids[3], grids[0], grids[2]])
    assert len(panels_of([grids[3], grids[0]])) == len(panels_of([grids[2]])) + 1
    (machine,) = json.loads(files[0].read_text())["machines"]
    edit(files[0], machines=[machine | {"dtype": "float32"}, machine])
    assert Run(files[0].parent).precision() == "float32 and bfloat16"


def test_partial_grids_are_left_out_and_named_with_the_command(comparison: Path) -> None:
    interrupt(FIRE / "seed-0/grid.json")
    command = "tape-arith score runs/mini/fire/seed-0"
    note = f"note: left out: fire seed 0: 1 of 3 problems a cell are scored: {command}\n"
    for words in (
        ("heatmap", "--compare", "rope,fire"),
        ("leaderboard", "--out", "board.csv"),
        ("report",),
    ):
        assert done(*words).err == note
    panels, excluded = Selection(RUNS, "fire").panels()
    assert panels[0].seeds == (1,)
    assert excluded == [("fire seed 0", "scored in part")]
    shutil.rmtree(FIRE / "seed-1")
    assert command in refused("heatmap", "--compare", "fire", after=True)
    done(*command.split()[1:])
    assert done("leaderboard").err == ""


def test_the_caption_names_settings(comparison: Path) -> None:
    panels, _ = Selection(RUNS, "fire,tape+yarn").panels()
    settings_named = "(preset mini with trained_digits=2, tested_digits=3, num_problems=64, "
    assert settings_named in footnote(panels)
    shutil.rmtree(FIRE)
    done("train", "--pe", "fire", *settings(learning_rate=0.002, clip=0.25))
    line = done("leaderboard").err
    assert (
        "fire seed 0: other settings (learning_rate 0.002, not the preset's; clip 0.25, not "
        in line
    )


def test_all_of_them(comparison: Path) -> None:
    """Best first, and last what did not converge: at this size, all of them."""
    drawn = done("heatmap", "--compare", "all", "--out", "all.svg")
    assert drawn.err == ""
    text = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", Path("all.svg").read_text()))
    places = [
        text.index(name)
        for name in ("FIRE", "RoPE", "TAPE + YaRN", "order: by name, because nothing is ranked")
    ]
    assert places == sorted(places)
    shutil.rmtree(FIRE / "seed-1")
    drawn = done("heatmap", "--compare", "all", "--seed", 1)
    assert drawn.out == "runs/mini/rope-tape+yarn.png\n"


def test_names_in_their_order_or_sorted(comparison: Path) -> None:
    given, _ = Selection(RUNS, "rope,fire,rope").panels()
    assert [panel.name for panel in given] == ["rope", "fire"]
    for panel in given:
        for grid in panel.grids:  # as if both had fit, and fire had gone further
            grid.exact[:] = np.where(grid.mask("in_distribution"), grid.total, panel.name == "fire")
    assert [panel.name for panel in sort_panels(given)] == ["fire", "rope"]
    assert describe_order(given) == "order: by mean out of distribution"
    assert done("heatmap", "--compare", "rope,fire", "--sort").out == "runs/mini/fire-rope.png\n"


def test_nothing_out_of_distribution(here: Path) -> None:
    text = done("train", "--pe", "rope", *settings(tested_digits=2)).out
    assert "nothing is out of distribution (trained and tested to 2 digits), in dist" in text
    assert "not scored" not in text


@pytest.mark.parametrize(
    ("inside", "part"),
    [("mini", "one preset"), ("mini/rope", "one encoding"), ("mini/rope/seed-0", "a run")],
)
def test_a_folder_inside_that_of_runs_is_answered_with_the_right_one_alone(
    comparison: Path, inside: str, part: str
) -> None:
    advice = f"runs/{inside} is the folder of {part}: name that of all runs, --runs runs"
    for command in ("heatmap", "curves", "leaderboard", "report"):
        line = refused(command, "--pe", "rope,fire,nope", "--runs", f"runs/{inside}")
        assert line.endswith(f": {advice}") and "train" not in line
    assert done("list", "--runs", f"runs/{inside}").err == (
        f"note: no run in runs/{inside}: {advice}\n"
    )
