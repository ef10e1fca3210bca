"""Datasets on disk: whole, the same for any number of workers, and strict about what they read."""

import errno
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset, verify
from tape_arith.arith.data.manifest import Manifest, expected_seen
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.errors import Failure, UsageError
from tests.helpers.sealing import replaced

BUCKET = Bucket("addition", 8, 0, "train")
COUNT, SHARD = 5000, 1500


def make(directory: Path, **options: Any) -> Manifest:
    return generate(directory, BUCKET, COUNT, **{"shard_size": SHARD, **options})


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "data")
    return tmp_path / "data"


def test_reading_equals_making(folder: Path) -> None:
    dataset = Dataset(folder)
    assert dataset.bucket == BUCKET and len(dataset) == COUNT
    for start, stop in [(0, COUNT), (0, 1), (1499, 1501), (1030, 4700), (4999, 5000), (7, 7)]:
        read, made = dataset.problems(start, stop), BUCKET.problems(start, stop)
        for a, b in zip(map(np.asarray, read), map(np.asarray, made), strict=True):
            assert np.array_equal(a, b) and a.dtype == b.dtype
    for start, stop in [(-1, 3), (0, COUNT + 1), (9, 8)]:
        with pytest.raises(ValueError, match=r"holds problems 0 \.\. 5000"):
            dataset.problems(start, stop)


def test_the_files_and_the_manifest(folder: Path) -> None:
    numbers = range(4)
    names = {f"{kind}-{number:05d}.npy" for kind in ("tokens", "lengths") for number in numbers}
    assert set(files(folder)) == {"manifest.json", *names}
    content = json.loads((folder / "manifest.json").read_text())
    expected = {
        "schema": 2,
        "kind": "dataset",
        "task": "addition",
        "version": 1,
        "seed": 0,
        "split": "train",
        "max_digits": 8,
        "count": COUNT,
        "pairs": 64,
    }
    assert {name: content[name] for name in expected} == expected
    assert content["vocabulary"][3:5] == ["[EOS]", "0"] and len(content["vocabulary"]) == 19
    assert [shard["count"] for shard in content["shards"]] == [1500, 1500, 1500, 500]
    lengths = np.load(folder / "lengths-00001.npy")
    assert lengths.dtype == np.uint16
    assert lengths.sum() == np.load(folder / "tokens-00001.npy").size
    assert verify(folder) == Manifest.load(folder)


def test_any_number_of_workers_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    told: list[int] = []
    make(tmp_path / "two", workers=2, progress=told.append)
    assert files(folder) == files(tmp_path / "two")
    assert len(told) == 4 and told == sorted(told) and told[-1] == COUNT


def test_a_finished_dataset_is_left_alone(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    told: list[int] = []
    assert make(folder, progress=told.append) == Manifest.load(folder)
    # Where shards are cut is no part of what a dataset is.
    assert make(folder, shard_size=700) == Manifest.load(folder)
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert told == [COUNT]


@pytest.mark.parametrize(
    "other", [(Bucket("addition", 8, 1, "train"), COUNT), (BUCKET, COUNT + 1)], ids=str
)
def test_another_dataset_is_not_written_over(folder: Path, other: tuple[Bucket, int]) -> None:
    before = files(folder)
    with pytest.raises(
        UsageError, match=r"holds 5,000 problems .*choose another --out, or --fresh"
    ):
        generate(folder, *other)
    assert files(folder) == before
    generate(folder, *other, fresh=True, shard_size=SHARD)
    assert Dataset(folder).bucket == other[0] and len(Dataset(folder)) == other[1]


def stopped(directory: Path, after: int) -> None:
    """What a call leaves that is stopped when `after` problems are written."""

    class Stop(Exception):
        pass

    def stop(done: int) -> None:
        if done >= after:
            raise Stop

    with pytest.raises(Stop):
        make(directory, progress=stop)


def test_an_interrupted_call_goes_on(folder: Path, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    stopped(partial, 2 * SHARD)
    assert {"shard-00000.json", "shard-00001.json"} <= set(files(partial))
    assert "manifest.json" not in files(partial)
    with pytest.raises(UsageError, match="no finished dataset"):
        Dataset(partial)
    with pytest.raises(UsageError, match="an unfinished dataset of 5,000 problems"):
        generate(partial, BUCKET, COUNT + 1, shard_size=SHARD)
    with pytest.raises(UsageError, match="unfinished"):
        make(partial, shard_size=SHARD + 1)

    kept = (partial / "tokens-00000.npy").stat().st_mtime_ns
    (partial / ".tokens-00002.npy.123.partial").write_bytes(b"half")
    flipped = bytearray((partial / "tokens-00001.npy").read_bytes())
    flipped[-5] ^= 1
    (partial / "tokens-00001.npy").write_bytes(flipped)
    copy = partial / "shard-00000 (copy).json"  # as a service that synchronizes folders leaves it
    shutil.copy(partial / "shard-00000.json", copy)
    told: list[int] = []
    make(partial, progress=told.append)
    copy.unlink()
    assert files(partial) == files(folder)
    assert (partial / "tokens-00000.npy").stat().st_mtime_ns == kept
    assert told == [SHARD, 2 * SHARD, 3 * SHARD, COUNT]


def test_a_kill_between_manifest_and_cleaning(folder: Path) -> None:
    before = files(folder)
    (folder / "shard-00000.json").write_text("{}")
    (folder / ".manifest.json.77.partial").write_text("{")
    make(folder)
    assert files(folder) == before


def test_foreign_folders(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(UsageError, match=r"holds other files \(thesis.tex"):
            make(tmp_path, fresh=fresh)
    (tmp_path / "thesis.tex").rename(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_text('{"kind": "webpack"}')
    for fresh in (False, True):
        with pytest.raises(UsageError, match="is not of a dataset"):
            make(tmp_path, fresh=fresh)
    assert files(tmp_path) == {"manifest.json": b'{"kind": "webpack"}'}


def test_fresh_removes_only_what_is_ours(folder: Path) -> None:
    before = files(folder)
    (folder / "notes.txt").write_text("keep me")
    (folder / "manifest.json").write_text("{ broken")
    with pytest.raises(Failure, match=r"manifest.json is corrupt.*--fresh"):
        make(folder)
    make(folder, fresh=True)
    assert files(folder) == {**before, "notes.txt": b"keep me"}


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Failure, match="cannot write to the folder"):
            make(directory)


@pytest.mark.parametrize("options", [{"count": 0}, {"count": -1}, {"workers": 0}], ids=str)
def test_numbers_that_make_no_dataset(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        generate(tmp_path, BUCKET, **{"count": 9, **options})


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Failure, match=r"cannot write .*tokens-00000.npy: No space left"):
            make(tmp_path)
    assert files(tmp_path) == {}
    make(tmp_path)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(place: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return change


def swap_lengths(path: Path) -> None:
    lengths = np.load(path)
    other = int(np.argmax(lengths != lengths[0]))
    lengths[[0, other]] = lengths[[other, 0]]
    np.save(path, lengths)


def garbage(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tokens-00001.npy", Path.unlink),
        ("lengths-00003.npy", Path.unlink),
        ("tokens-00001.npy", truncate),
        ("lengths-00001.npy", truncate),
        ("tokens-00001.npy", garbage),
        ("lengths-00001.npy", garbage),
        ("lengths-00001.npy", flip(300)),
        ("lengths-00001.npy", swap_lengths),
        ("tokens-00001.npy", flip(-1)),
        ("tokens-00001.npy", flip(20)),  # in the header
    ],
)
def test_damaged_shards_are_named(folder: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(folder / name)
    shard = name.partition("-")[2]
    with pytest.raises(Failure, match=rf"{shard}.*generate --fresh") as caught:
        Dataset(folder).problems(0, COUNT)
    assert "\n" not in str(caught.value)
    with pytest.raises(Failure, match=rf"{name}.*generate --fresh"):
        verify(folder)


def test_verify_sees_one_flipped_bit(folder: Path) -> None:
    flip(500)(folder / "tokens-00002.npy")
    flip(2000)(folder / "tokens-00000.npy")
    with pytest.raises(Failure, match=r"tokens-00000.npy, tokens-00002.npy not as"):
        verify(folder)


def test_verify_sees_problems_of_another_generator(folder: Path) -> None:
    path = folder / "manifest.json"
    replaced(path, '"seed": 0', '"seed": 1')
    with pytest.raises(Failure, match=r"tokens-00000.npy"):
        verify(folder)


def test_no_dataset_at_all(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="no finished dataset"):
            Dataset(directory)


def test_expected_seen_against_a_count(tmp_path: Path) -> None:
    bucket, count = Bucket("addition", 2, 5, "train"), 803
    generate(tmp_path, bucket, count)
    problems = Dataset(tmp_path).problems(0, count)
    stated = json.loads((tmp_path / "manifest.json").read_text())["expected_seen"]
    prompts = [
        bytes(prompt) for prompt in np.split(problems.tokens, np.cumsum(problems.lengths)[:-1])
    ]
    for first, second in [(1, 1), (1, 2), (2, 2)]:
        inside = (problems.operand_lengths == [first, second]).all(axis=1)
        distinct = len({prompts[row] for row in np.flatnonzero(inside)})
        pairs, drawn = 81 * 10 ** (first + second - 2), int(inside.sum())
        share = 1 - (1 - 1 / pairs) ** drawn
        assert stated[first - 1][second - 1] == pytest.approx(share, rel=1e-9)
        load = drawn / pairs  # the spread of the number of occupied cells among `pairs`
        spread = math.sqrt(pairs * (math.exp(-load) - (1 + load) * math.exp(-2 * load)))
        assert abs(distinct - share * pairs) < 3 * spread


def test_expected_seen_of_numbers_past_every_float() -> None:
    shares = expected_seen(Bucket("addition", 300, 0, "train"), 90_000 * 200)
    assert shares[0][0] == pytest.approx(1 - (80 / 81) ** 200)
    assert shares[9][9] == pytest.approx(200 / (81 * 10**18), rel=1e-9)
    assert shares[299][299] == 0.0
    assert all(0 <= share <= 1 for row in shares for share in row)
