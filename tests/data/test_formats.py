"""Text and Parquet, read back by those who read them."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from tape_arith.arith.data import bucket as bucket_module
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.formats import write_problems
from tape_arith.arith.errors import Failure, UsageError

BUCKET, COUNT = Bucket("addition", 40, 2, "train"), 3000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "_PIECE_TOKENS", 100_000)


def check(lines: list[str]) -> None:
    assert len(lines) == COUNT
    for line in lines:
        prompt, answer = line.split("=")
        first, second = prompt.split("+")
        assert int(first[::-1]) + int(second[::-1]) == int(answer[::-1])


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "problems.txt"
    counts: list[int] = []
    assert write_problems(path, BUCKET, COUNT, "text", progress=counts.append) == path
    check(path.read_text().splitlines())
    assert path.read_bytes().endswith(b"\n") and counts[-1] == COUNT and len(counts) > 1
    note = json.loads((path.parent / "problems.txt.json").read_text())
    assert note["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert note["count"] == COUNT and note["format"] == "text"
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, path.name + ".json"]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "problems.parquet"
    write_problems(path, BUCKET, COUNT, "parquet")
    table = parquet.read_table(path)
    assert table.column_names == ["text", "first_length", "second_length"]
    lines = table["text"].to_pylist()
    check(lines)
    columns = (table[name].to_pylist() for name in table.column_names[1:])
    pairs = [list(pair) for pair in zip(*columns, strict=True)]
    assert pairs == BUCKET.operand_lengths(0, COUNT).tolist()
    write_problems(tmp_path / "problems.txt", BUCKET, COUNT, "text")
    assert (tmp_path / "problems.txt").read_text().splitlines() == lines


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'tape-arith\[data\]'"):
        write_problems(tmp_path / "x.parquet", BUCKET, COUNT, "parquet")
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "problems.txt"
    write_problems(path, BUCKET, COUNT, "text")
    before = path.stat().st_mtime_ns
    write_problems(path, BUCKET, COUNT, "text")
    assert path.stat().st_mtime_ns == before
    (tmp_path / "mine.txt").write_text("mine")
    for file, count, form, message in (
        (path, COUNT + 1, "text", "holds 3,000 problems .*: choose another --out"),
        (path, COUNT, "parquet", "is text, not parquet: choose another --out"),
        (path, 0, "text", "at least 1 problem"),
        (tmp_path / "mine.txt", COUNT, "text", "not ours"),
        (tmp_path, COUNT, "text", "is a folder"),
    ):
        with pytest.raises(UsageError, match=message):
            write_problems(file, BUCKET, count, form)
    path.write_text("1+1=2\n")
    with pytest.raises(Failure, match="not as the hash"):
        write_problems(path, BUCKET, COUNT, "text")
    write_problems(path, BUCKET, COUNT, "text", fresh=True)
    check(path.read_text().splitlines())
