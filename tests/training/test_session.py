"""Runs on disk: refused commands and corrupt files, and that nothing is lost by either."""

import json
import resource
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tape_arith.arith import machine
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.find import every_run
from tape_arith.arith.runs.preset import changed_settings
from tape_arith.arith.runs.run import Run
from tests.helpers.committed_runs import RESULTS
from tests.helpers.documents import edit_text, untimed_record
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched

ROPE = "runs/mini/rope/seed-0"
ROOT = Path(__file__).parents[2]


def train(*options: object, **changed: object) -> tuple[object, ...]:
    return ("train", "--pe", "rope", *settings(**changed), *options)


def make_unfinished() -> None:
    weights = Path(ROPE, "weights")
    (weights / "before-cooldown.safetensors").rename(weights / "latest.safetensors")


# A folder that holds another run


@pytest.mark.parametrize("setting", ["learning_rate", "num_problems", "steps"])
def test_another_run(comparison: Path, setting: str) -> None:
    value = {"learning_rate": 0.002, "num_problems": 65, "steps": 8}[setting]
    with untouched(comparison):
        assert f"({setting}: " in refused(*train(**{setting: value}))


def test_a_longer_budget(comparison: Path) -> None:
    done("train", ROPE, "--steps", 8)
    folder = Run(Path(ROPE))
    assert (folder.record().config.steps, folder.record().first_steps) == (8, 4)
    assert [line["step"] for line in folder.metrics()] == [8]
    assert folder.state().trained and folder.grid_file().exists()
    with untouched(comparison):
        assert "8 steps" in refused("train", ROPE, "--steps", 6)
        done("train", ROPE, "--steps", 8)


# Versions of the task and of the code


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_version_of_the_task(comparison: Path, finished: bool) -> None:
    file = Path(ROPE, "run.json")
    original = file.read_bytes()
    if not finished:
        make_unfinished()
    edit_text(file, '"task_version": 1', '"task_version": 2')
    for command in (train(), ("train", ROPE, "--steps", 8), ("score", ROPE)):
        with untouched(comparison):
            assert "version 2" in refused(*command)
    if finished:
        before = untimed_record(json.loads(original))
        done(*train("--data", "data/addition-bucket-2", "--fresh"))
        assert untimed_record(json.loads(file.read_bytes())) == before


def test_published_runs_are_read() -> None:
    runs = every_run(RESULTS)
    assert len(runs) > 500
    recipes = set[tuple[str, Config]]()
    for run in runs:
        record = run.record()
        assert record.task_version == 1 and run.metrics() and record.seconds and record.machine
        recipes.add((record.preset, record.config))
    assert not any(changed_settings(config, preset) for preset, config in recipes)


def test_the_version_is_that_of_the_code_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation notes the version of the day it was made."""
    monkeypatch.setattr(machine, "version", {"tape-arith": "0.0.1"}.__getitem__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert machine.own_version() == project["version"] != "0.0.1"
    monkeypatch.setattr(machine, "ROOT", tmp_path)  # as it is where it was installed
    assert machine.own_version() == "0.0.1"
    assert machine.commit() is None


def test_a_run_keeps_its_earlier_machines(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(*train("--no-score"))
    folder = Run(Path(ROPE))
    (first,) = folder.record().machines
    monkeypatch.setattr("tape_arith.arith.decoders.environment.own_version", lambda: "9.9.9")
    for steps in (6, 8):  # an equal machine is not listed twice
        done("train", ROPE, "--steps", steps, "--no-score")
        machines = folder.record().machines
        assert machines[0] == first and machines[-1].tape_arith == "9.9.9"
    assert len(machines) == 3
    done("score", ROPE)  # which may be on another machine than training
    scoring = json.loads(folder.grid_file().read_text())["scoring"]
    assert scoring["tape-arith"] == "9.9.9" and scoring["attention"] == "eager"
    assert {"torch", "hardware", "dtype", "threshold"} <= scoring.keys()


# Data


def test_a_run_keeps_to_the_dataset_that_it_began_on(comparison: Path) -> None:
    original = Run(Path(ROPE)).record().data
    assert original is not None
    edit_text(Path(ROPE, "run.json"), original, "ab" * 32)
    data = ("--data", "data/addition-bucket-2")
    with untouched(comparison):
        assert original[:12] in refused("train", ROPE, "--steps", 8, *data)
    make_unfinished()
    for command in (("train", ROPE, *data), train(*data)):
        assert original[:12] in refused(*command)
    done(*train())


def test_training_takes_what_generate_left(here: Path) -> None:
    done("generate", *settings())
    taken = done(*train())
    assert "data/addition-bucket-2" in taken.err
    done(*train("--runs", "given", "--data", "data/addition-bucket-2"))
    more = done(*train("--runs", "more", "--set", "num_problems=65"))  # not those of this run
    assert "addition-bucket-2" not in more.err
    given = Path("given", *Path(ROPE).parts[1:])
    for file in ("weights/final.safetensors", "grid.json"):
        assert Path(ROPE, file).read_bytes() == (given / file).read_bytes()
    first, second = (json.loads((run / "run.json").read_text()) for run in (Path(ROPE), given))
    assert untimed_record(first) == untimed_record(second)
    assert Run(Path(ROPE)).record().data is not None
    folder = Path("data/addition-bucket-2")
    tokens = folder / "tokens.npy"

    def trains_without_it(damaged: Path, root: str) -> None:
        assert str(damaged) in done(*train("--runs", root)).err
        alone = Path(root, "mini/rope/seed-0/weights/final.safetensors")
        assert alone.read_bytes() == Path(ROPE, "weights/final.safetensors").read_bytes()

    tokens.write_bytes(tokens.read_bytes()[:-1] + b"\x00")
    trains_without_it(tokens, "one")
    edit_text(folder / "manifest.json", '"count": 64', '"count": 63')
    trains_without_it(folder, "two")


def test_other_data(comparison: Path) -> None:
    for made, options, words in (
        ("other-seed", ("--seed", 1), "(seed 1,"),
        ("longer", ("--set", "trained_digits=3", "--set", "tested_digits=6"), "to 3 digits"),
        ("fewer", ("--count", 32), "not 32"),
    ):
        done("generate", "--out", made, *settings(), *options)
        with untouched(comparison):
            assert words in refused(*train("--data", made))
            line = refused("train", ROPE, "--steps", 8, "--data", made)
        assert line.startswith(made)


# Files of a run


def test_a_corrupt_file_is_refused_where_it_is_needed(comparison: Path) -> None:
    grid, metrics = Path(ROPE, "grid.json"), Path(ROPE, "metrics.jsonl")
    grid.write_text("{")
    with untouched(comparison):
        assert str(grid) in refused(*train(), code=1)
    done("score", ROPE, "--fresh")
    metrics.write_bytes(b"7\n")
    with untouched(comparison):
        # One run that cannot be read does not hide the others, nor its own grid.
        listed = done("list").out
        assert f"unreadable: {metrics}" in listed and "rope/seed-1" in listed
        done(*train())
    done("train", ROPE, "--steps", 8)
    assert [line["step"] for line in Run(Path(ROPE)).metrics()] == [8]


# Disks


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Every write beyond `size` bytes of a file fails, whoever makes it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [570, 8000])
def test_writes_that_fail_lose_nothing(comparison: Path, size: int) -> None:
    with files_of_at_most(size):
        line = refused(*train("--out", "new"), code=1, after=True)
    assert "new/mini/rope/seed-0" in line
    assert not [name for name in contents(Path("new")) if "partial" in name]
    done(*train("--out", "new"))
    new = Run(Path("new/mini/rope/seed-0"))
    assert new.final.read_bytes() == Run(Path(ROPE)).final.read_bytes()
    assert len(new.metrics()) == 1


def test_a_folder_that_is_a_file(comparison: Path) -> None:
    Path("file").write_text("mine")
    for command in (
        ("generate", "--out", "file/new", "--format", "text", *settings()),
        train("--runs", "file/new"),
        ("run", "--pe", "nope", "--datasets", "file", *settings()),
        ("heatmap", "--compare", "rope,fire", "--out", "file/map.png"),
    ):
        with untouched(comparison):
            assert "cannot write" in refused(*command, code=1, after=True)
