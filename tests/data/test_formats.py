"""Text and Parquet, read back by those who read them."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from tape_arith.arith.data import bucket as bucket_module
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.formats import write_parquet, write_text
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
    told: list[int] = []
    assert write_text(path, BUCKET, COUNT, progress=told.append) == path
    check(path.read_text().splitlines())
    assert path.read_bytes().endswith(b"\n") and told[-1] == COUNT and len(told) > 1
    note = json.loads((path.parent / "problems.txt.json").read_text())
    assert note["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert note["count"] == COUNT and note["format"] == "text"
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, path.name + ".json"]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "problems.parquet"
    write_parquet(path, BUCKET, COUNT)
    table = parquet.read_table(path)
    assert table.column_names == ["text", "first_length", "second_length"]
    table.validate(full=True)
    lines = table["text"].to_pylist()
    check(lines)
    columns = (table[name].to_pylist() for name in table.column_names[1:])
    pairs = list(zip(*columns, strict=True))
    assert pairs == [tuple(len(n) for n in line.split("=")[0].split("+")) for line in lines]
    assert pairs == [tuple(pair) for pair in BUCKET.operand_lengths(0, COUNT).tolist()]
    write_text(tmp_path / "problems.txt", BUCKET, COUNT)
    assert (tmp_path / "problems.txt").read_text().splitlines() == lines


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'tape-arith\[data\]'"):
        write_parquet(tmp_path / "x.parquet", BUCKET, COUNT)


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "problems.txt"
    write_text(path, BUCKET, COUNT)
    before = path.stat().st_mtime_ns
    write_text(path, BUCKET, COUNT)
    assert path.stat().st_mtime_ns == before
    with pytest.raises(UsageError, match=r"holds 3,000 problems .* as text: choose another --out"):
        write_text(path, BUCKET, COUNT + 1)
    with pytest.raises(UsageError, match="at least 1 problem"):
        write_text(path, BUCKET, 0)
    path.write_text("1+1=2\n")
    with pytest.raises(Failure, match="not as the hash"):
        write_text(path, BUCKET, COUNT)
    write_text(path, BUCKET, COUNT, fresh=True)
    check(path.read_text().splitlines())
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not ours"):
        write_text(tmp_path / "mine.txt", BUCKET, COUNT)
    with pytest.raises(UsageError, match="is a folder"):
        write_text(tmp_path, BUCKET, COUNT)
