"""`generate`: the folder and the form of its problems; text and Parquet, read back."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.data import write_dataset as problems
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.write_dataset import write_problems
from tape_arith.arith.errors import UsageError
from tests.helpers.tiny_runs import done, refused, settings, untouched

BUCKET, COUNT = Bucket("addition", 40, 2, "train"), 3000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "PIECE", 700)


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
    assert list(path.parent.iterdir()) == [path]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "problems.parquet"
    write_problems(path, BUCKET, COUNT, "parquet")
    table = parquet.read_table(path)
    assert table.column_names == ["text", "digits_a", "digits_b"]
    lines = table["text"].to_pylist()
    check(lines)
    columns = (table[name].to_pylist() for name in table.column_names[1:])
    pairs = [list(pair) for pair in zip(*columns, strict=True)]
    assert pairs == BUCKET.axis_lengths(0, COUNT).tolist()
    write_problems(tmp_path / "problems.txt", BUCKET, COUNT, "text")
    assert (tmp_path / "problems.txt").read_text().splitlines() == lines


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"tape-arith\[data\]"):
        write_problems(tmp_path / "x.parquet", BUCKET, COUNT, "parquet")
    assert not list(tmp_path.iterdir())


def test_another_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "problems.txt"
    for _ in range(2):  # the same again is no error
        write_problems(path, BUCKET, COUNT, "text")
    written = path.read_bytes()
    for file, count, message in (
        (path, COUNT + 1, "3,001 problems"),
        (path, 0, "--count 1"),
        (tmp_path, COUNT, "is a folder"),
    ):
        with pytest.raises(UsageError, match=message):
            write_problems(file, BUCKET, count, "text")
    assert path.read_bytes() == written and list(tmp_path.iterdir()) == [path]
    path.write_bytes(written.replace(b"1", b"2", 1))
    with pytest.raises(UsageError, match="is damaged"):
        write_problems(path, BUCKET, COUNT, "text")
    write_problems(path, BUCKET, COUNT, "text", fresh=True)
    assert path.read_bytes() == written


def test_its_defaults_are_the_paper_s(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(problems, "generate", lambda *arguments, **_: calls.append(arguments))
    folder = "data/addition-bucket-40"
    assert done("generate").out == f"{folder}\n"
    assert calls == [(Path(folder), Bucket("addition", 40, 0, "train"), 20_000_000)]


def test_the_forms(here: Path) -> None:
    text = "data/addition-bucket-2.txt"
    for form, path in (("tokens", "data/addition-bucket-2"), ("text", text)):
        for _ in range(2):  # the second call finds it done
            assert done("generate", "--format", form, *settings()).out == f"{path}\n"
    assert len(Path(text).read_text().splitlines()) == 64
    assert "64 problems" in done("generate", "--verify", "data/addition-bucket-2").out
    with untouched(here):
        again = ("generate", "--format", "text", "--out", text, *settings(), "--seed", 1)
        assert text in refused(*again, after=True)
        for change in (("--count", 63), ("--set", "num_problems=63")):
            line = refused("generate", *settings(), *change)
            assert "64 problems" in line and "--fresh" in line
    pytest.importorskip("pyarrow")
    parquet = done("generate", "--format", "parquet", *settings()).out
    assert parquet == "data/addition-bucket-2.parquet\n"
