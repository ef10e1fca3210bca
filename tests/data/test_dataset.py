"""Datasets on disk: complete, the same for any number of workers, strict about what they read."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tape_arith.arith.data import write_dataset
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset, Manifest, verify
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.errors import Failure, UsageError
from tests.helpers.documents import edit_text

BUCKET = Bucket("addition", 8, 0, "train")
COUNT, PIECE = 5000, 1500


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_dataset, "PIECE", PIECE)
        yield


def make(directory: Path, **options: Any) -> Manifest:
    return generate(directory, BUCKET, COUNT, **options)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.mark.parametrize(
    "name", ["addition", "sort", "copy:hints=true", "multiplication:spaces=2:scratchpad=true"]
)
def test_reading_equals_making(name: str, tmp_path: Path) -> None:
    bucket = Bucket(name, 6, 0, "train", 4 * (name == "sort"))
    generate(tmp_path, bucket, COUNT)
    dataset = Dataset(tmp_path)
    assert dataset.bucket == bucket and len(dataset) == COUNT
    assert verify(tmp_path) == dataset.manifest
    for start, stop in [(0, COUNT), (0, 1), (1499, 1501), (1030, 4700), (4999, 5000), (7, 7)]:
        read, expected = dataset.problems(start, stop), bucket.problems(start, stop)
        for a, b in zip(map(np.asarray, read), map(np.asarray, expected), strict=True):
            assert np.array_equal(a, b) and a.dtype == b.dtype
    for start, stop in [(-1, 3), (0, COUNT + 1), (9, 8)]:
        with pytest.raises(ValueError, match="5000 problems"):
            dataset.problems(start, stop)


def test_any_number_of_workers_writes_the_same_bytes(made: Path, tmp_path: Path) -> None:
    counts: list[int] = []
    make(tmp_path / "three", workers=3, progress=counts.append)
    assert files(made) == files(tmp_path / "three")
    assert counts == [1500, 3000, 4500, 5000]


def test_a_finished_dataset_is_left_alone(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    counts: list[int] = []
    assert make(folder, progress=counts.append) == Manifest.load(folder)
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert counts == [COUNT]


@pytest.mark.parametrize(
    "other", [(Bucket("addition", 8, 1, "train"), COUNT), (BUCKET, COUNT + 1)], ids=str
)
def test_another_dataset_is_not_written_over(folder: Path, other: tuple[Bucket, int]) -> None:
    before = files(folder)
    with pytest.raises(UsageError, match=r"5,000 .*--fresh"):
        generate(folder, *other)
    assert files(folder) == before
    generate(folder, *other, fresh=True)
    assert Dataset(folder).bucket == other[0] and len(Dataset(folder)) == other[1]


def test_a_stopped_call_leaves_nothing(made: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(done: int) -> None:
        if done >= 2 * PIECE:
            raise Stop

    with pytest.raises(Stop):
        make(tmp_path, progress=stop)
    assert files(tmp_path) == {}
    with pytest.raises(UsageError, match="finished"):
        Dataset(tmp_path)
    make(tmp_path)
    assert files(tmp_path) == files(made)


def test_files_without_a_manifest_are_written_anew(folder: Path) -> None:
    before = files(folder)
    (folder / "manifest.json").unlink()
    (folder / "tokens.npy").write_bytes(b"half")
    (folder / "lengths-00003.npy").write_bytes(b"a shard of version 0.8")
    make(folder)
    assert files(folder) == before


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "manifest.json"])
def test_foreign_folders(tmp_path: Path, name: str, fresh: bool) -> None:
    (tmp_path / name).write_text('{"kind": "webpack"}')
    with pytest.raises(UsageError, match=rf"\({name}"):
        make(tmp_path, fresh=fresh)
    assert files(tmp_path) == {name: b'{"kind": "webpack"}'}


def test_fresh_removes_only_what_is_ours(folder: Path) -> None:
    before = files(folder)
    (folder / "notes.txt").write_text("keep me")
    (folder / "manifest.json").write_text("{ broken")
    with pytest.raises(Failure, match=r"manifest.json.*--fresh"):
        make(folder)
    make(folder, fresh=True)
    assert files(folder) == {**before, "notes.txt": b"keep me"}


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Failure, match="cannot write"):
            make(directory)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Failure, match=r"(tokens|lengths).npy: No space"):
        make(tmp_path / "full")
    assert files(tmp_path / "full") == {}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(place: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return change


TOKENS, LENGTHS = "tokens.npy", "lengths.npy"


@pytest.mark.parametrize(
    "damages",
    [
        {TOKENS: Path.unlink},
        {LENGTHS: Path.unlink},
        {TOKENS: truncate},
        {LENGTHS: flip(300)},
        {TOKENS: flip(-1)},
        {TOKENS: flip(20)},  # in the header
        {TOKENS: flip(2000), LENGTHS: flip(500)},
    ],
)
def test_damaged_files_are_named(folder: Path, damages: dict[str, Callable[[Path], None]]) -> None:
    for name, damage in damages.items():
        damage(folder / name)
    with pytest.raises(Failure, match=rf"({'|'.join(damages)}).*generate --fresh"):
        Dataset(folder).problems(0, COUNT)
    with pytest.raises(Failure, match=r".*".join([*damages, "generate --fresh"])) as caught:
        verify(folder)
    assert "\n" not in str(caught.value)


def test_verify_sees_problems_of_another_generator(folder: Path) -> None:
    edit_text(folder / "manifest.json", '"seed": 0', '"seed": 1')
    with pytest.raises(Failure, match=r"tokens.npy"):
        verify(folder)
