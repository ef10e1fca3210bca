"""From nothing to a heatmap: what `run` leaves, and that it never does a thing twice."""

import csv
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from tape_arith.arith import stopping
from tape_arith.arith.runs.folder import RunFolder, find_runs
from tape_arith.arith.training import checkpoint
from tests.helpers.tiny_runs import call, contents, done, refused, settings

SMALL = {"run.json", "environment.json", "metrics.jsonl", "timings.json"}


def answer(answers: Iterator[bool], _: stopping.Stopper) -> bool:
    return next(answers)


def same_training(one: Path, other: Path) -> None:
    """Both ended with the same bits, and kept the same state before the cool-down."""
    here, there = RunFolder(one), RunFolder(other)
    assert here.final.read_bytes() == there.final.read_bytes()
    # Its header counts seconds.
    mine, theirs = (checkpoint.load(run.before_cooldown, "cpu")[0] for run in (here, there))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_every_run_leaves_its_folder(trained: Path) -> None:
    folders = find_runs(trained / "runs")
    grids = {"rope": {"grid.json"}, "fire": {"grid.json"}, "tape": {"grid+yarn.json"}}
    assert len(folders) == 6
    for folder in folders:
        record = folder.record()
        assert folder.path == trained / "runs" / "mini" / record.encoding / f"seed-{record.seed}"
        names = {path.name for path in folder.path.iterdir()}
        assert names == SMALL | grids[record.encoding] | {"weights"}
        kept = {path.name for path in (folder.path / "weights").iterdir()}
        assert kept == {"final.safetensors", "before-cooldown.safetensors"}
        assert folder.finished() and record.data is not None
        assert record.config.steps == 4 and record.first_steps == 4
        way = "score" if record.encoding != "tape" else "score+yarn"
        assert set(folder.timings()) == {"generate", "train", way}
        assert [line["step"] for line in folder.metrics()] == [4]
        environment = json.loads((folder.path / "environment.json").read_text())
        assert environment["command"].startswith("tape-arith run --pe rope,fire,tape+yarn")
        assert {"commit", "torch", "python", "device", "dtype", "threads"} <= environment.keys()
        # What is carried away is small, and says nothing of the machine it lay on.
        apart = {k: v for k, v in contents(folder.path).items() if "weights" not in k}
        assert sum(map(len, apart.values())) < 100_000
        assert not any(str(trained).encode() in text for text in apart.values())


def test_the_figure_and_the_tables(trained: Path) -> None:
    place = trained / "runs" / "mini"
    assert (place / "rope-fire-tape+yarn.png").read_bytes().startswith(b"\x89PNG")
    with open(place / "table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["encoding"] for row in rows} == {"rope", "fire", "tape+yarn"}
    assert {row["seeds"] for row in rows} == {"0 1"}
    assert (place / "table.md").read_text().startswith("| encoding |")


def test_a_second_call_does_nothing_twice(comparison: Path) -> None:
    runs = comparison / "runs"
    before = contents(runs)
    times = {path: path.stat().st_mtime_ns for path in runs.rglob("seed-*/**/*")}
    again = done("run", "--pe", "rope,fire,tape+yarn", "--seeds", "0,1", *settings())
    assert "training" not in again.err and "score " not in again.err
    assert again.out == "runs/mini/rope-fire-tape+yarn.png\n"
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("seed-*/**/*")} == times
    assert contents(runs) == before


def test_data_on_disk_and_data_as_needed_give_one_run(comparison: Path) -> None:
    done("train", "--pe", "rope", "--out", "other", *settings())
    one, other = (Path(root, "mini/rope/seed-0") for root in ("runs", "other"))
    assert RunFolder(other).record().data is None
    same_training(one, other)
    assert (one / "grid.json").read_bytes() == (other / "grid.json").read_bytes()


def test_a_training_that_is_stopped_is_that_of_an_unbroken_one(
    comparison: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ("train", "--pe", "tape", "--out", "slow", *settings())
    # It asks after every step but the last: first it stops after two of four, then after three.
    for questions in (1, 0):
        left = iter([False] * questions + [True] * 100)
        monkeypatch.setattr(stopping.Stopper, "time_is_up", property(partial(answer, left)))
        stopped = call(*train)
        assert stopped.code == 3, stopped.err
    assert not RunFolder(Path("slow/mini/tape/seed-0")).finished()
    assert "not scored" in done("list", "--runs", "slow").out
    monkeypatch.undo()
    monkeypatch.chdir(comparison)
    finished = done(*train)
    assert "from step" in finished.err
    same_training(Path("runs/mini/tape/seed-0"), Path("slow/mini/tape/seed-0"))
    assert len(RunFolder(Path("slow/mini/tape/seed-0")).metrics()) == 1


def test_nothing_to_run(here: Path) -> None:
    assert "--pe" in refused("run", "--pe", ",", *settings())
    assert contents(here) == {}
