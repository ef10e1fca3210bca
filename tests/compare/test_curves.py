"""The runs that `tape-arith curves` takes, and its refusals."""

import json
from pathlib import Path

from tape_arith.arith.compare.curves import align
from tape_arith.arith.figures.curves import Series
from tape_arith.arith.runs.folder import RunFolder
from tests.helpers.tiny_runs import done, refused, settings, untouched


def test_only_steps_that_every_seed_has() -> None:
    longer, shorter = [(20, 1.0), (40, 2.0), (60, 3.0)], [(40, 5.0), (20, 4.0)]
    assert align([longer, shorter]) == Series((20, 40), ((1.0, 2.0), (4.0, 5.0)))
    assert align([longer, []]) == Series((), ((), ()))


def test_by_command(comparison: Path) -> None:
    result = done("curves", "--compare", "rope,tape")
    path = Path(result.out.strip())
    assert path == Path("runs/mini/curves-rope-tape.png") and path.stat().st_size > 10_000
    with untouched(comparison):
        content = json.loads(done("curves", "--compare", "rope,tape", "--json").out)
    assert content["schema"] == 1 and content["preset"] == "mini"
    rope, tape = content["learners"]
    assert rope["seeds"] == tape["seeds"] == [0, 1]
    lines = [RunFolder(Path(f"runs/mini/tape/seed-{seed}")).metrics() for seed in (0, 1)]
    assert tape["loss"] == {"steps": [4], "values": [[line[0]["loss"]] for line in lines]}
    grids = [line[0]["small_grid"] for line in lines]
    assert tape["out_of_distribution"]["values"] == [[g["out_of_distribution"]] for g in grids]
    assert tape["in_distribution"]["values"] == [[g["in_distribution"]] for g in grids]
    assert list(tape["by_length"]) == ["1", "2", "3"]
    norms = [line[0]["state"]["norm"] for line in lines]
    assert tape["state"]["norm"][0]["values"] == [[norm[0]] for norm in norms]
    assert rope["state"] == {}


def test_runs_without_a_small_grid_are_drawn(here: Path) -> None:
    done("train", "--pe", "rope", "--no-curves", "--no-score", *settings())
    content = done("curves", "--compare", "rope", "--json")
    (rope,) = json.loads(content.out)["learners"]
    assert rope["out_of_distribution"] == {"steps": [], "values": [[]]}
    assert len(rope["held_out"]["steps"]) == 1 and rope["seeds"] == [0]
    done("curves", "--compare", "rope", "--out", "old.svg")
    assert Path("old.svg").stat().st_size > 10_000


def test_what_is_refused(comparison: Path) -> None:
    with untouched(comparison):
        assert "no run of nope" in refused("curves", "--compare", "rope,nope")
        assert "tape+yarn is trained as tape" in refused("curves", "--compare", "tape+yarn")
        assert "nothing to compare" in refused("curves", "--compare", ",")
        assert "figure's name ends in" in refused("curves", "--compare", "rope", "--out", "a.gif")
        assert "no run of rope" in refused("curves", "--compare", "rope", "--preset", "paper-40")


def test_all_of_them(comparison: Path) -> None:
    named = done("curves", "--compare", "fire,rope,tape", "--json").out
    with untouched(comparison):
        assert done("curves", "--compare", "all", "--json").out == named
    done("train", "--pe", "alibi", "--no-score", *settings(learning_rate=0.002))
    done("train", "runs/mini/rope/seed-0", "--steps", 8, "--no-score")
    Path("runs/mini/tape/seed-1/run.json").write_text("{")
    result = done("curves", "--compare", "all", "--json")
    learners = {each["encoding"]: each["seeds"] for each in json.loads(result.out)["learners"]}
    assert learners == {"fire": [0, 1], "rope": [1], "tape": [0]}
    assert "note: left out: alibi seed 0: learning_rate: 0.002, not 0.001\n" in result.err
    assert "note: left out: rope seed 0: steps: 8, not 4\n" in result.err
    assert "tape/seed-1/run.json is corrupt" in result.err
    with untouched(comparison):
        line = refused("curves", "--compare", "rope,alibi", after=True)
    assert "cannot stand in one figure" in line and "learning_rate: 0.00" in line
    done("train", "--pe", "rope", "--no-score", *settings(), "--preset", "paper-20")
    both = refused("curves", "--compare", "all", after=True)
    assert "mini, paper-20: choose one with --preset" in both
    figure = done("curves", "--compare", "all", "--preset", "paper-20")
    assert figure.out == "runs/paper-20/curves-rope.png\n"
