"""A grid scored in parts is the grid scored in one go."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tape_arith.arith.runs.find import find_grids
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.scoring import shards
from tape_arith.arith.scoring.shards import Shard
from tests.helpers.made_grids import blank
from tests.helpers.sealing import changed
from tests.helpers.tiny_runs import call, contents, done, refused, settings, untouched

ROPE = "runs/mini/rope/seed-0"


@pytest.mark.parametrize("of", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("rows", [1, 9, 20, 16_384])
def test_the_parts_are_the_whole_and_cut_where_it_is_saved(
    monkeypatch: pytest.MonkeyPatch, of: int, rows: int
) -> None:
    monkeypatch.setattr(shards, "ROWS_A_CHUNK", rows)
    whole = blank()
    count, unit = whole.evaluation["problems_per_cell"], shards.blocks_a_chunk(whole)
    parts = [Shard(number, of).blocks(whole) for number in range(1, of + 1)]
    assert [block for part in parts for block in part] == list(range(count))
    assert all(part.start % unit == 0 for part in parts if part)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) < 2 * unit


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2", "1/2 "])
def test_what_is_no_part(here: Path, text: str) -> None:
    assert "a part reads i/n" in refused("score", ROPE, "--shard", text)


@pytest.mark.parametrize("way", [(), ("--with", "yarn"), ("--max-digits", 4)])
@pytest.mark.parametrize("of", [1, 2, 5])
def test_parts_give_the_grid_of_one_go(
    comparison: Path, monkeypatch: pytest.MonkeyPatch, way: tuple[object, ...], of: int
) -> None:
    done("score", ROPE, *way, "--fresh")
    name = "grid+yarn.json" if "yarn" in way else "grid-to-4.json" if way else "grid.json"
    file = Path(ROPE, name)
    expected = file.read_bytes()
    before = contents(Path(ROPE))
    file.unlink()
    # Two chunks of the three blocks: with five parts some have nothing to do.
    monkeypatch.setattr(shards, "ROWS_A_CHUNK", 2 * (16 if "--max-digits" in way else 9))
    for number in reversed(range(1, of + 1)):
        assert (
            f"part {number}/{of} is missing" in refused("score", ROPE, *way, "--merge", of)
            or number != 1
        )
        assert not file.exists()
        done("score", ROPE, *way, "--shard", f"{number}/{of}")
    merged = done("score", ROPE, *way, "--merge", of)
    assert merged.out.startswith("rope")
    assert file.read_bytes() == expected
    after = contents(Path(ROPE))
    assert after.keys() == before.keys()
    stage = file.stem.replace("grid", "score")
    assert RunFolder(Path(ROPE)).timings()[stage] > 0
    # Again: nothing to do.
    with untouched(comparison):
        done("score", ROPE, *way, "--merge", of)


def test_a_part_goes_on_where_it_was_stopped(
    comparison: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Path(ROPE, "grid.json").read_bytes()
    Path(ROPE, "grid.json").unlink()
    monkeypatch.setattr(shards, "ROWS_A_CHUNK", 9)  # a block
    done("score", ROPE, "--shard", "1/2")
    stopped = call("score", ROPE, "--shard", "2/2", "--time-limit", "0.000001s")
    assert stopped.code == 3
    refused("score", ROPE, "--merge", 2)
    with pytest.MonkeyPatch.context() as patch:
        questions = iter([False, True])
        patch.setattr("tape_arith.arith.stopping.Stopper.__call__", lambda self: next(questions))
        patch.setattr("tape_arith.arith.stopping.Stopper.exit_code", 3)
        assert call("score", ROPE, "--shard", "2/2").code == 3
    assert "the parts hold 2 of 3" in refused("score", ROPE, "--merge", 2)
    done("score", ROPE, "--shard", "2/2")
    done("score", ROPE, "--merge", 2)
    assert Path(ROPE, "grid.json").read_bytes() == expected


def test_parts_are_no_grids_of_the_run(comparison: Path) -> None:
    Path(ROPE, "grid.json").unlink()
    done("score", ROPE, "--shard", "1/2")
    found = find_grids(Path("runs"))
    assert ("rope", 0) not in {(grid.encoding, grid.seed) for grid in found} and len(found) == 5
    assert all(np.all(grid.total == 3) for grid in found)


def test_parts_are_not_trained_over(comparison: Path) -> None:
    """A part that was carried here is of weights that are elsewhere: another training's part would
    be merged with it."""
    Path(ROPE, "grid.json").unlink()
    done("score", ROPE, "--shard", "1/2")
    shutil.rmtree(Path(ROPE, "weights"))
    with untouched(comparison):
        for command in (["train"], ["score", "--shard", "2/2"]):
            assert "its weights are not here" in refused(*command, ROPE)


def test_parts_of_another_run_are_refused(comparison: Path) -> None:
    Path(ROPE, "grid.json").unlink()
    for root in ("runs/mini/rope/seed-0", "runs/mini/rope/seed-1"):
        done("score", root, "--with", "yarn", "--shard", "1/1")
    other = Path("runs/mini/rope/seed-1/shards")
    other.rename(Path(ROPE, "shards-of-1"))
    RunFolder(Path(ROPE)).remove_shards()
    Path(ROPE, "shards-of-1").rename(Path(ROPE, "shards"))
    with untouched(comparison):
        assert "of another run" in refused("score", ROPE, "--with", "yarn", "--merge", 1)


@pytest.mark.parametrize("other", ["part", "whole"])
def test_one_part_does_not_stand_for_another(comparison: Path, other: str) -> None:
    """Its problems would count twice, and the other's not at all."""
    for number in (1, 2):
        done("score", ROPE, "--with", "yarn", "--shard", f"{number}/2")
    parts = [Path(ROPE, f"shards/grid+yarn/{number}-of-2/grid+yarn.json") for number in (1, 2)]
    if other == "whole":
        done("score", ROPE, "--with", "yarn")
        parts[0] = Path(ROPE, "grid+yarn.json")
    parts[1].write_bytes(parts[0].read_bytes())
    Path(ROPE, "grid+yarn.json").unlink(missing_ok=True)
    with untouched(comparison):
        assert "is not part 2/2" in refused("score", ROPE, "--with", "yarn", "--merge", 2)
        told = refused("score", ROPE, "--with", "yarn", "--shard", "2/2")
        assert ("is part 1/2, not part 2/2" if other == "part" else "is a whole grid") in told
    done("score", ROPE, "--with", "yarn", "--shard", "2/2", "--fresh")


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_grid_that_counts_its_blocks_wrongly(comparison: Path, blocks: int) -> None:
    file = Path(ROPE, "grid.json")
    file.write_bytes(changed(file.read_bytes(), blocks_done=blocks))
    with untouched(comparison):
        assert "grid.json is corrupt: " in refused("score", ROPE, code=1)
    done("score", ROPE, "--fresh")


def test_starting_over_forgets_the_parts(comparison: Path) -> None:
    done("score", ROPE, "--with", "yarn", "--shard", "1/2")
    assert Path(ROPE, "shards").exists()
    done("train", "--pe", "rope", "--fresh", "--no-score", *settings())
    assert not Path(ROPE, "shards").exists()


def test_a_part_and_putting_together_are_two_things(comparison: Path) -> None:
    with untouched(comparison):
        assert "--merge" in refused("score", ROPE, "--merge", 2, "--shard", "1/2")
