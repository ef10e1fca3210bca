"""Runs on disk: what is refused, what is corrupt, and that nothing is lost by either."""

import errno
import json
import os
import resource
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arith.suite.folders import RunFolder
from arith.training import checkpoint
from tests.sealing import resealed
from tests.suite.tiny import contents, done, refused, settings, untouched
from tests.thinning import one_in

ROPE = "runs/mini/rope/seed-0"
PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("*/*/seed-*/run.json"))


def train(*more: object, **other: object) -> tuple[object, ...]:
    return ("train", "--pe", "rope", *settings(**other), *more)


# A folder that holds another run


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"learning_rate": 0.002}, "learning_rate: 0.001, not 0.002"),
        ({"num_layers": 2}, "num_layers: 1, not 2"),
        ({"problems_per_cell": 4}, "problems_per_cell: 3, not 4"),
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
        ("train", ROPE),
        ("train", ROPE, "--steps", 4),
        ("train", ROPE, "--steps", 8),
        ("score", ROPE),
        ("score", ROPE, "--fresh"),
        ("score", ROPE, "--with", "yarn"),
        ("run", "--pe", "rope,fire", "--seeds", "0", *settings()),
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
        line = refused(*command, after=command[0] == "run")  # which looks at the data first
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


def test_a_run_from_before_versions_were_written_down(comparison: Path) -> None:
    """Its record and its weights say nothing of a version: they are of the first."""
    folder = RunFolder(Path(ROPE))
    change = replace_text(' "task_version": 1,\n', "")
    folder.record_file.write_bytes(change(folder.record_file.read_bytes()))
    for file in (folder.final, folder.before_cooldown):
        tensors, facts = checkpoint.load(file, "cpu")
        del facts["task_version"]
        checkpoint.save(file, tensors, facts)
    assert folder.record().task_version == 1
    done("score", ROPE, "--fresh")
    done("train", ROPE, "--steps", 8)
    assert folder.record().task_version == 1


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: "/".join(file.parts[-4:-1]))
def test_published_records_are_read(file: Path) -> None:
    record = RunFolder(file.parent).record()
    assert record.task_version == 1 and record.settings == {}


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
    assert line.startswith("made holds") and told in line and "--seed 0" in line


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


def flip(place: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("manifest.json", put(b"{")),
        ("manifest.json", put(b"")),
        ("manifest.json", replace_text('"version": 1', '"version": 2')),
        ("manifest.json", replace_text('"count": 64', '"count": 63')),
        ("manifest.json", replace_text('"sha256": "', '"sha256": "0')),
        ("tokens-00000.npy", put(b"")),
        ("tokens-00000.npy", put(b"7" * 500)),
        ("tokens-00000.npy", flip(3)),  # numpy's header
        ("lengths-00000.npy", flip(200)),
    ],
)
def test_corrupt_data(comparison: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    folder = Path("data/addition-bucket-2")
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    with untouched(folder):
        for command in (train("--data", folder, "--out", "new"), ("generate", "--verify", folder)):
            line = refused(*command, code=1, after=True)
            # A wrong count in the manifest shows in the size of a shard.
            assert str(folder) in line and (name in line or ".npy is not the shard" in line)
            assert "tape-arith generate --fresh" in line
    done("generate", "--fresh", "--out", folder, *settings())
    done(*train("--data", folder, "--out", "new"))


def test_a_changed_digit_is_found_by_its_hash(comparison: Path) -> None:
    file = Path("data/addition-bucket-2/tokens-00000.npy")
    file.write_bytes(flip(130)(file.read_bytes()))
    line = refused("generate", "--verify", file.parent, code=1)
    assert file.name in line and "--fresh" in line


# Files of a run


def header(content: str) -> bytes:
    text = json.dumps({"__metadata__": {"tape-arith": content}}).encode()
    return struct.pack("<Q", len(text)) + text


CORRUPT_RECORDS = [
    put(b""),
    put(b"{"),
    put(b"[]"),
    put(b'{"schema": 9, "kind": "run"}'),
    replace_text('"rope"', '"rpoe"'),
    replace_text('"rope"', "7"),
    replace_text('"rope"', '"fire"'),
    replace_text('"seed": 0', '"seed": 3'),
    replace_text('"seed": 0', '"seed": null'),
    replace_text('"steps": 4', '"steps": "4"'),
    replace_text('"steps": 4', '"steps": 0'),
    replace_text('"config"', '"cnofig"'),
    replace_text('"first_steps": 4', '"first_steps": "x"'),
    replace_text('"task_version": 1', '"task_version": null'),
    replace_text('"task_version": 1', '"task_version": "x"'),
]


@pytest.mark.parametrize("number", one_in(3, range(len(CORRUPT_RECORDS))))
def test_a_corrupt_record(comparison: Path, number: int) -> None:
    file = Path(ROPE, "run.json")
    file.write_bytes(CORRUPT_RECORDS[number](file.read_bytes()))
    with untouched(comparison):
        # Another encoding or seed reads well, but the weights are not its own.
        line = refused("score", ROPE, "--fresh", code=1)
        assert ROPE in line and ("run.json" in line or "belongs to another run" in line)
        refused(*train(), code=2 if "another run" in line else 1)
        assert "runs/mini/rope/seed-1" in done("list").out


def test_a_corrupt_record_does_not_hide_its_grid(comparison: Path) -> None:
    Path(ROPE, "run.json").write_text("{")
    done("heatmap", "--compare", "rope,fire")
    done("table")


def test_another_seed_in_the_record_is_another_run(comparison: Path) -> None:
    file = Path(ROPE, "run.json")
    file.write_bytes(replace_text('"seed": 0', '"seed": 3')(file.read_bytes()))
    with untouched(comparison):
        assert "another run" in refused(*train())


@pytest.mark.parametrize(
    "change",
    [
        put(b""),
        put(b"{"),
        put(b'{"schema": 1, "kind": "run"}'),
        replace_text('"seed": 0', '"seed": -3'),
        replace_text('"total": [\n  [', '"total": [\n  [9, '),
    ],
)
def test_a_corrupt_grid(comparison: Path, change: Callable[[bytes], bytes]) -> None:
    file = Path(ROPE, "grid.json")
    file.write_bytes(change(file.read_bytes()))
    with untouched(comparison):
        for command in (
            ("score", ROPE),
            train(),
            ("heatmap", "--compare", "rope,fire"),
            ("table",),
        ):
            assert str(file) in refused(*command, code=1)
        assert ROPE in done("list").out
    done("score", ROPE, "--fresh")
    done("table")


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"step": 4\n', b"7\n", b"{}\n", b"\xff\n", b"[]\n", b'{"step": true}\n'),
        *(b'{"step": 4, "loss": NaN}\n', b'{"step": 4, "exact_match": 1.5}\n'),
        b'{"step": 4, "small_grid": {"in_distribution": 1.0}}\n',
        b'{"step": 4, "state": {"norm": 1.0}}\n',
    ],
)
def test_corrupt_metrics(comparison: Path, text: bytes) -> None:
    file = Path(ROPE, "metrics.jsonl")
    file.write_bytes(text)
    with untouched(comparison):
        # One run that cannot be read does not hide the others, nor its own grid.
        listed = done("list")
        assert f"unreadable: {file} is corrupt" in listed.out and "rope/seed-1" in listed.out
        done(*train())
    done("train", ROPE, "--steps", 8)
    assert [line["step"] for line in RunFolder(Path(ROPE)).metrics()] == [8]


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'{"schema": 1, "kind": "timings"}',
        b'{"schema": 1, "kind": "timings", "seconds": {"train": "x"}}',
        b'{"schema": 1, "kind": "timings", "seconds": 7}',
    ],
)
def test_corrupt_timings(comparison: Path, text: bytes) -> None:
    file = Path(ROPE, "timings.json")
    file.write_bytes(text)
    assert str(file) in refused("score", ROPE, "--fresh", code=1, after=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"\xff" * 100,
        header("[]"),
        header("{"),
        header('{"schema": 2}'),
        header('{"schema": 1, "step": "x"}'),
        struct.pack("<Q", 2) + b"{}",
    ],
    ids=range(8),
)
@pytest.mark.parametrize("name", ["final", "latest"])
def test_a_corrupt_checkpoint(comparison: Path, name: str, content: bytes) -> None:
    file = Path(ROPE, "weights", f"{name}.safetensors")
    file.write_bytes(content)
    Path(ROPE, "weights/before-cooldown.safetensors").unlink()
    command = ("score", ROPE, "--fresh") if name == "final" else train()
    before = contents(comparison)
    assert str(file) in refused(*command, code=1)
    # What it ran on last is written down before anything is read.
    changed = {key for key, text in contents(comparison).items() if before.get(key) != text}
    assert changed <= {f"{ROPE}/environment.json"}


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


def test_score_with_what_does_not_fit(comparison: Path) -> None:
    with untouched(comparison):
        assert "did you mean 'yarn'" in refused("score", ROPE, "--with", "yran")
        assert "one of code, paper" in refused("score", ROPE, "--with", "yarn:ramp=x")
        assert "FIRE has none" in refused("score", "runs/mini/fire/seed-0", "--with", "yarn")
        assert "2 trained digits" in refused("score", ROPE, "--max-digits", 1)
        assert "700 digits at most" in refused("score", ROPE, "--max-digits", 701)


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


@pytest.mark.parametrize("size", [100, 570, 700, 2000, 8000])
def test_writes_that_fail_lose_nothing(comparison: Path, size: int) -> None:
    with files_of_at_most(size):
        line = refused(*train("--out", "new"), code=1, after=True)
    assert line.startswith("cannot write new/mini/rope/seed-0")
    assert not [name for name in contents(Path("new")) if "partial" in name]
    done(*train("--out", "new"))
    one, other = RunFolder(Path(ROPE)), RunFolder(Path("new/mini/rope/seed-0"))
    assert one.final.read_bytes() == other.final.read_bytes()
    assert len(other.metrics()) == 1


def test_metrics_that_cannot_be_written(here: Path) -> None:
    # The first lines fit; no checkpoint is due yet.
    with files_of_at_most(750):
        line = refused(*train("--no-score", steps=100, cooldown=0.1), code=1, after=True)
    assert f"cannot write {ROPE}/metrics.jsonl" in line
    done(*train("--no-score", steps=100, cooldown=0.1))
    steps = [line["step"] for line in RunFolder(Path(ROPE)).metrics()]
    assert steps == list(range(20, 101, 20))


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
        ("generate", "--out", "file/new", *settings()),
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
