"""Files that are whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from arith.errors import Failure
from arith.files import atomic, read_json, sha256, write_json, write_text


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_text(path, "one\n")
    with atomic(path) as temporary:
        temporary.write_text("two\n")
        assert path.read_text() == "one\n"
        assert temporary.parent == path.parent  # a rename between file systems is a copy
    assert path.read_text() == "two\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_crash_inside_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for before in ([], [path]):
        with pytest.raises(ZeroDivisionError), atomic(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == before
        write_text(path, "whole")
    assert path.read_text() == "whole"


def test_a_block_that_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"cannot write .*file"), atomic(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "kept")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "a" / "b"):
        with pytest.raises(Failure, match=f"cannot write {path}"):
            write_text(path, "x")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_name_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="name too long"):
        write_text(tmp_path / ("x" * 300), "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Failure, match="folder"):
        write_text(tmp_path / "folder", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    path = tmp_path / "file"
    write_text(path, "kept")
    monkeypatch.setattr(os, function, full)
    with pytest.raises(Failure, match=r"cannot write .*file: No space left"):
        write_text(path, "other")
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "kept"


def test_json_goes_and_comes(tmp_path: Path) -> None:
    content = {"schema": 1, "kind": "run", "name": "Peña", "x": 0.1, "none": None}
    write_json(tmp_path / "file", content)
    assert read_json(tmp_path / "file", "run") == content
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "file", {"x": float("nan")})
    assert read_json(tmp_path / "file", "run") == content


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"", "corrupt: not JSON"),
        (b'{"schema": 1, "kind": "run"', "corrupt: not JSON"),
        (b"\xff\xfe\x00", "corrupt: not JSON"),
        (b"[" * 100_000, "corrupt: not JSON"),
        (b"[1]", "not a run of tape-arith"),
        (b"null", "not a run of tape-arith"),
        (b'{"schema": 1, "kind": "grid"}', "not a run of tape-arith"),
        (b'{"schema": 2, "kind": "run"}', "schema 2; this version reads schema 1"),
        (b'{"kind": "run"}', "schema None"),
    ],
)
def test_what_is_not_ours(tmp_path: Path, text: bytes, wrong: str) -> None:
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(Failure, match=wrong) as caught:
        read_json(tmp_path / "run.json", "run")
    assert str(tmp_path / "run.json") in str(caught.value) and "\n" not in str(caught.value)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(Failure, match=f"cannot read {path}"):
            read_json(path, "run")
        with pytest.raises(Failure, match=f"cannot read {path}"):
            sha256(path)


def test_sha256(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "abc")
    assert sha256(tmp_path / "file").startswith("ba7816bf8f01cfea")
