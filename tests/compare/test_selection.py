"""Which runs stand in one figure, and what is said where they cannot."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import tape_arith
from tape_arith.arith.compare.captions import footnote
from tape_arith.arith.compare.leaderboard import heatmap_panels, sort_panels
from tape_arith.arith.compare.selection import Selection
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import slug
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import panels_of
from tape_arith.arith.runs.run import Run
from tests.helpers.boards import seeds_shown
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
    done("score", "runs/mini/rope/seed-0", "--with", "yarn")
    shutil.rmtree(FIRE)  # another way of scoring does not stand in for it
    with untouched(comparison):
        assert "--pe fire" in refused("heatmap", "--compare", "rope,fire")


def test_one_preset(comparison: Path) -> None:
    shutil.copytree(RUNS / "mini", RUNS / "paper-20")
    for file in (RUNS / "paper-20").glob("*/*/*.json"):
        if '"mini"' in file.read_text():
            edit_text(file, '"mini"', '"paper-20"')
    with pytest.raises(UsageError, match="paper-20"):
        Selection(RUNS, "fire,rope").panels()
    assert Selection(RUNS, "fire,rope", "paper-20").panels()[0][0].preset == "paper-20"
    # Only one preset holds all that is asked for: no question to ask.
    shutil.rmtree(RUNS / "paper-20/fire")
    assert Selection(RUNS, "fire,rope").panels()[0][0].preset == "mini"


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
        assert "fire/seed-0/run.json" in result.err
        assert seeds_shown("rope,fire") == {"rope": 2, "fire": 1}
    (folder / "grid-to-4.json").unlink()
    assert seeds_shown("rope,fire") == {"rope": 2, "fire": 2}


@pytest.mark.parametrize("name", ["grid.json", "run.json"])
def test_a_corrupt_file_does_not_stop_the_others(
    comparison: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("runs/mini/rope/seed-1", name)
    file.write_bytes(file.read_bytes()[:100])
    compare = ("--compare", "rope,fire")
    reads_no_grid = ("curves", *compare, "--json")
    for command in (("leaderboard",), ("list",), ("tasks",), reads_no_grid):
        result = done(*command)
        notes = (result.err + result.out).count(f"{file} is corrupt")
        assert notes == (name == "run.json" or command != reads_no_grid)
    (rope, fire), _ = Selection(RUNS, "rope,fire").panels()
    assert capsys.readouterr().err.count(f"{file} is corrupt") == 1
    assert fire.seeds == (0, 1)
    assert rope.seeds == ((0,) if name == "grid.json" else (0, 1))  # its grid is whole
    if name == "grid.json":  # `run` draws what it was asked for
        done("run", "--pe", "fire", "--seeds", "0", *settings())


def test_grids_that_differ_are_left_out_and_named(comparison: Path) -> None:
    as_version_2(FIRE / "seed-0")
    with untouched(comparison):
        (fire, _), excluded = Selection(RUNS, "fire,rope").panels()
        assert fire.seeds == (1,)
        assert [runs for runs, _ in excluded] == ["fire seed 0"]
    as_version_2(FIRE / "seed-1")
    assert set(seeds_shown()) == {"rope", "tape+yarn"}
    # An encoding that is asked for is never dropped.
    for command in ("heatmap", "leaderboard", "report"):
        assert "version" in refused(command, "--compare", "rope,fire")
    assert Selection(RUNS, "fire").panels()[0][0].seeds == (0, 1)


def test_a_run_is_named_by_its_label_too(comparison: Path) -> None:
    for file in FIRE.glob("*/*.json"):
        edit_text(file, '"fire"', '"mine.py:Mine"')
        if file.name == "run.json":
            edit_text(file, '"label": "FIRE"', '"label": "Mine"')
    FIRE.rename(RUNS / "mini" / slug("mine.py:Mine"))
    with untouched(comparison):
        assert seeds_shown("Mine,rope") == {"mine.py:Mine": 2, "rope": 2}
        assert json.loads(done("curves", "--pe", "Mine", "--json").out)["preset"] == "mini"
        assert "unknown encoding 'Mime'" in refused("heatmap", "--pe", "Mime,rope")


def test_runs_of_another_precision_are_left_out_and_named(comparison: Path) -> None:
    """Also a run whose first part was trained in another one; what is not known excludes none."""
    files = [RUNS / f"mini/{run}/run.json" for run in ("rope/seed-0", "rope/seed-1")]
    files += [FIRE / "seed-0/run.json", FIRE / "seed-1/run.json"]
    for file in RUNS.glob("mini/*/*/run.json"):
        edit_machine(file, dtype="bfloat16")
    edit_machine(files[2], dtype="float32")
    edit(files[3], machines=[])
    for command in (("leaderboard",), ("curves", "--pe", "rope,fire", "--json")):
        (note,) = done(*command).err.splitlines()
        assert "fire seed 0" in note and "float32" in note
    grids = [Run(file.parent).grids()["grid"] for file in files]
    with pytest.raises(UsageError, match="bfloat16"):
        panels_of([grids[3], grids[0], grids[2]])
    assert len(panels_of([grids[3], grids[0]])) == len(panels_of([grids[2]])) + 1
    (machine,) = json.loads(files[0].read_text())["machines"]
    edit(files[0], machines=[machine | {"dtype": "float32"}, machine])
    assert "float32" in str(Run(files[0].parent).precision())


def test_partial_grids_are_left_out_and_named_with_the_command(comparison: Path) -> None:
    interrupt(FIRE / "seed-0/grid.json")
    command = "tape-arith score runs/mini/fire/seed-0"
    for words in (("curves", "--pe", "all", "--json"), ("leaderboard", "--csv"), ("report",)):
        named = command in done(*words).err
        assert named == (words[0] != "curves")
    panels, excluded = Selection(RUNS, "fire").panels()
    assert panels[0].seeds == (1,) and [runs for runs, _ in excluded] == ["fire seed 0"]
    shutil.rmtree(FIRE / "seed-1")
    assert command in refused("heatmap", "--compare", "fire", after=True)
    done(*command.split()[1:])
    assert done("leaderboard").err == ""


def test_the_caption_names_settings(comparison: Path) -> None:
    panels, _ = Selection(RUNS, "fire,tape+yarn").panels()
    settings_named = "(preset mini with trained_digits=2, tested_digits=3, num_problems=64, "
    assert settings_named in footnote(panels)


def test_all_of_them(comparison: Path) -> None:
    """Best first, and last what did not converge: at this size, all of them."""
    assert done("heatmap", "--compare", "all", "--out", "all.svg").err == ""
    text = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", Path("all.svg").read_text()))
    places = [
        text.index(name)
        for name in ("FIRE", "RoPE", "TAPE + YaRN", "order: by name, because nothing is ranked")
    ]
    assert places == sorted(places)


def test_names_in_their_order_or_sorted(comparison: Path) -> None:
    given, _ = Selection(RUNS, "rope,fire,rope").panels()
    assert [panel.name for panel in given] == ["rope", "fire"]
    for panel in given:
        for grid in panel.grids:  # as if both had fit, and fire had gone further
            grid.exact[:] = np.where(grid.mask("in_distribution"), grid.total, panel.name == "fire")
    assert [panel.name for panel in sort_panels(given)] == ["fire", "rope"]
    panels, in_order = heatmap_panels(Selection(RUNS, "rope,fire"), sort=True)
    assert [panel.name for panel in panels] == ["fire", "rope"] and in_order


@pytest.mark.usefixtures("uncomposed")
def test_options_of_the_command_choose_what_is_drawn(comparison: Path) -> None:
    for options, name in (((), "rope-fire"), (("--sort",), "fire-rope")):
        drawn = done("heatmap", "--compare", "rope,fire", *options)
        assert drawn.out == f"runs/mini/{name}.png\n"
    shutil.rmtree(FIRE / "seed-1")
    drawn = done("heatmap", "--compare", "all", "--seed", 1)
    assert drawn.out == "runs/mini/rope-tape+yarn.png\n"


def test_nothing_out_of_distribution(here: Path) -> None:
    text = done("train", "--pe", "rope", *settings(tested_digits=2)).out
    assert "to 2 digits" in text and "not scored" not in text


def test_several_folders_are_one(comparison: Path) -> None:
    (theirs := Path("theirs/mini/rope")).mkdir(parents=True)
    shutil.copytree(RUNS / "mini/rope/seed-0", theirs / "seed-0")
    (RUNS / "mini/rope/seed-1").rename(theirs / "seed-1")
    (RUNS / "mini/tape").rename("theirs/mini/tape")
    both = ("--runs", "runs", "--runs", "theirs")
    frame = tape_arith.leaderboard(runs=["runs", Path("theirs")])
    seeds = dict(zip(frame.encoding, map(list, frame.seeds), strict=True))
    assert seeds == {"rope": [0, 1], "fire": [0, 1], "tape+yarn": [0, 1]}
    twice = "left out: theirs/mini/rope/seed-0: the same run as runs/mini/rope/seed-0"
    for command in ("tasks", "report"):
        result = done(command, *both)
        assert result.err.count("left out") == 1 and twice in result.err, command
    assert Path("runs/mini/report.html").exists() and not list(Path("theirs/mini").glob("*.*"))
    steps = tape_arith.curves("rope,tape", runs=("runs", "theirs"))
    assert {*zip(steps.encoding, steps.seed, strict=True)} == {
        (name, seed) for name in ("rope", "tape") for seed in (0, 1)
    }
    assert "is given twice" in refused("list", *both)
    grid = Grid.load(theirs / "seed-0/grid.json")
    grid.exact[:] = grid.total
    grid.save(theirs / "seed-0/grid.json")
    other = "theirs/mini/rope/seed-0: another result of the run runs/mini/rope/seed-0, which counts"
    assert f"left out: {other}\n" in done("leaderboard", *both).err
    # Of another budget it is another run.
    longer = ("--pe", "rope", *settings(steps=6), "--runs", "longer")
    done("train", *longer)
    err = done("leaderboard", "--runs", "runs", "--runs", "longer").err
    assert "left out: rope seed 0: steps 6, not 4" in err and not re.search(
        "same run|first steps", err
    )
    edit(theirs / "seed-1/run.json", sources={"rope": "a" * 64})
    assert "different versions of rope" in refused("leaderboard", *both, after=True)
