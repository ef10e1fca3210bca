"""Runs on disk: what is refused, what is corrupt, and that nothing is lost by either."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.training import checkpoint
from tests.helpers.sealing import resealed
from tests.helpers.tiny_runs import contents, done, refused, settings, untouched

ROPE = "runs/mini/rope/seed-0"
PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("*/*/seed-*/run.json"))


def train(*more: object, **other: object) -> tuple[object, ...]:
    return ("train", "--pe", "rope", *settings(**other), *more)


# A folder that holds another run


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"learning_rate": 0.002}, "learning_rate: 0.001, not 0.002"),
        ({"num_problems": 65}, "num_problems: 64, not 65"),
    ],
)
def test_another_run(comparison: Path, other: dict[str, object], told: str) -> None:
    with untouched(comparison):
        line = refused(*train(**other))
    assert f"{ROPE} holds another run ({told})" in line and "--out" in line and "--fresh" in line


def test_another_budget(comparison: Path) -> None:
    with untouched(comparison):
        line = refused(*train(steps=8))
    assert f"tape-arith train {ROPE} --steps 8" in line


def test_fresh_starts_over(comparison: Path) -> None:
    done(*train("--fresh", learning_rate=0.002))
    assert RunFolder(Path(ROPE)).record().config.learning_rate == 0.002
    assert len(RunFolder(Path(ROPE)).metrics()) == 1


def test_a_longer_budget(comparison: Path) -> None:
    done("train", ROPE, "--steps", 8)
    record = RunFolder(Path(ROPE)).record()
    assert record.config.steps == 8 and record.first_steps == 4
    assert [line["step"] for line in RunFolder(Path(ROPE)).metrics()] == [8]
    assert RunFolder(Path(ROPE)).finished() and (Path(ROPE) / "grid.json").exists()
    with untouched(comparison):
        assert "8 steps already" in refused("train", ROPE, "--steps", 6)
        done("train", ROPE, "--steps", 8)
        refused("train", ROPE, "--steps", 0)


def test_a_longer_budget_of_a_run_without_cool_down(here: Path) -> None:
    done(*train("--no-score", cooldown=0))
    done("train", ROPE, "--steps", 6, "--no-score")
    assert RunFolder(Path(ROPE)).metrics()[-1]["step"] == 6


# Versions of the task


def of_another_version(folder: Path) -> bytes:
    """Write into the record what a later version of the task would have; what it was."""
    file = folder / "run.json"
    before = file.read_bytes()
    file.write_bytes(replace_text('"task_version": 1', '"task_version": 2')(before))
    return before


@pytest.mark.parametrize(
    "command",
    [
        train(),
        ("train", ROPE, "--steps", 8),
        ("score", ROPE),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_version_of_the_task(
    comparison: Path, command: tuple[object, ...], finished: bool
) -> None:
    if not finished:
        Path(ROPE, "weights/before-cooldown.safetensors").rename(
            Path(ROPE, "weights/latest.safetensors")
        )
    of_another_version(Path(ROPE))
    with untouched(comparison):
        line = refused(*command)
    assert line.startswith(f"{ROPE} was trained on version 2 of addition, and this tape-arith ")
    assert "makes version 1: go on with tape-arith 0." in line and "--fresh" in line


def test_another_version_of_the_task_starts_over(comparison: Path) -> None:
    before = of_another_version(Path(ROPE))
    done(*train("--data", "data/addition-bucket-2", "--fresh"))
    assert Path(ROPE, "run.json").read_bytes() == before


def test_weights_of_another_version_of_the_task(comparison: Path) -> None:
    folder = RunFolder(Path(ROPE))
    tensors, facts = checkpoint.load(folder.final, "cpu")
    assert facts["task_version"] == 1
    checkpoint.save(folder.final, tensors, {**facts, "task_version": 2})
    with untouched(comparison):
        line = refused("score", ROPE, "--fresh", code=1)
    assert f"{folder.final} belongs to another run: task_version is 2, not 1" in line


def test_published_runs_are_read() -> None:
    assert len(PUBLISHED) > 50
    for file in PUBLISHED:
        folder = RunFolder(file.parent)
        record = folder.record()
        assert record.task_version == 1 and record.settings == {}
        assert folder.metrics() and folder.timings()


# Data


def test_a_run_keeps_to_the_dataset_that_it_began_on(comparison: Path) -> None:
    file = Path(ROPE, "run.json")
    began = RunFolder(Path(ROPE)).record().data
    assert began is not None
    file.write_bytes(replace_text(began, "ab" * 32)(file.read_bytes()))
    data = ("--data", "data/addition-bucket-2")
    told = (
        f"data/addition-bucket-2 is not the dataset that the run began on ({began[:12]}, not abab"
    )
    with untouched(comparison):
        line = refused("train", ROPE, "--steps", 8, *data)
        assert told in line and "leave --data out" in line
    Path(ROPE, "weights/before-cooldown.safetensors").rename(
        Path(ROPE, "weights/latest.safetensors")
    )
    for command in (("train", ROPE, *data), train(*data)):
        assert told in refused(*command)
    done(*train())


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (("--seed", 1), "of seed 1"),
        (("--set", "trained_digits=3", "--set", "tested_digits=6"), "to 3 digits"),
    ],
)
def test_other_data(here: Path, made: tuple[object, ...], told: str) -> None:
    done("generate", "--out", "made", *settings(), *made)
    with untouched(here):
        line = refused(*train("--data", "made"))
    assert line.startswith("made holds") and told in line and "leave --data out" in line


def test_data_of_another_count(comparison: Path) -> None:
    done("generate", "--out", "made", "--count", 32, *settings())
    with untouched(comparison):
        assert "num_problems: 64, not 32" in refused(*train("--data", "made"))
        assert "tape-arith generate" in refused(*train("--data", "nothing"))


def test_refused_data_does_not_extend_a_run(comparison: Path) -> None:
    done("generate", "--out", "made", "--count", 32, *settings())
    with untouched(comparison):
        line = refused("train", ROPE, "--steps", 8, "--data", "made")
    assert "32 problems" in line and "64" in line


def replace_text(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return resealed(content.replace(old.encode(), new.encode(), 1))

    return change


def put(content: bytes) -> Callable[[bytes], bytes]:
    return lambda _: content


# Files of a run


def test_a_corrupt_record_does_not_hide_its_grid(comparison: Path) -> None:
    Path(ROPE, "run.json").write_text("{")
    done("heatmap", "--compare", "rope,fire")
    done("leaderboard")


def test_another_seed_in_the_record_is_another_run(comparison: Path) -> None:
    file = Path(ROPE, "run.json")
    file.write_bytes(replace_text('"seed": 0', '"seed": 3')(file.read_bytes()))
    with untouched(comparison):
        assert "another run" in refused(*train())


def test_a_corrupt_grid_is_refused_where_it_is_needed_and_left_out_elsewhere(
    comparison: Path,
) -> None:
    file = Path(ROPE, "grid.json")
    file.write_text("{")
    with untouched(comparison):
        for command in (("score", ROPE), train()):
            assert str(file) in refused(*command, code=1)
        for command in (("list",), ("leaderboard",)):
            assert f"note: left out: {file} is corrupt" in done(*command).err
    done("score", ROPE, "--fresh")
    assert done("leaderboard").err == ""


def test_corrupt_metrics(comparison: Path) -> None:
    file = Path(ROPE, "metrics.jsonl")
    file.write_bytes(b"7\n")
    with untouched(comparison):
        # One run that cannot be read does not hide the others, nor its own grid.
        listed = done("list")
        assert f"unreadable: {file} is corrupt" in listed.out and "rope/seed-1" in listed.out
        done(*train())
    done("train", ROPE, "--steps", 8)
    assert [line["step"] for line in RunFolder(Path(ROPE)).metrics()] == [8]


def test_weights_of_another_run(comparison: Path) -> None:
    file = Path(ROPE, "weights", "final.safetensors")
    file.write_bytes(Path("runs/mini/rope/seed-1/weights/final.safetensors").read_bytes())
    with untouched(comparison):
        line = refused("score", ROPE, "--fresh", code=1)
    assert f"{file} belongs to another run: seed is 1, not 0" in line


def test_score_of_what_is_not_trained(comparison: Path) -> None:
    Path(ROPE, "weights", "final.safetensors").rename(Path(ROPE, "weights/latest.safetensors"))
    with untouched(comparison):
        assert f"tape-arith train {ROPE}" in refused("score", ROPE)
        assert "tape-arith list" in refused("score", "runs/mini/rope")
        assert "tape-arith list" in refused("train", "runs/mini/rope")


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
    assert line.startswith("cannot write new/mini/rope/seed-0")
    assert not [name for name in contents(Path("new")) if "partial" in name]
    done(*train("--out", "new"))
    one, other = RunFolder(Path(ROPE)), RunFolder(Path("new/mini/rope/seed-0"))
    assert one.final.read_bytes() == other.final.read_bytes()
    assert len(other.metrics()) == 1


@pytest.mark.parametrize(
    "command", [("generate", "--out", "new"), ("train", "--pe", "rope", "--out", "new")]
)
def test_a_full_disk(here: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    line = refused(*command, *settings(), code=1)
    assert line.startswith("cannot write new/") and "No space left" in line
    assert contents(here) == {}


def test_a_figure_on_a_full_disk(comparison: Path) -> None:
    with untouched(comparison), files_of_at_most(5000):
        line = refused("heatmap", "--compare", "rope,fire", code=1)
    assert "cannot write runs/mini/rope-fire.png" in line


@pytest.mark.parametrize(
    "command",
    [
        ("generate", "--out", "file", *settings()),
        ("generate", "--out", "file/new", "--format", "text", *settings()),
        ("train", "--pe", "rope", "--out", "file", *settings()),
        ("run", "--pe", "rope", "--seeds", "7", "--data", "file", *settings()),
        ("heatmap", "--compare", "rope,fire", "--out", "file/map.png"),
    ],
)
def test_a_folder_that_is_a_file(comparison: Path, command: tuple[str, ...]) -> None:
    Path("file").write_text("kept")
    with untouched(comparison):
        assert "cannot write" in refused(*command, code=1)
