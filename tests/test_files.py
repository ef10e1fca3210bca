"""Files that are whole or not there."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from arith.errors import Failure
from arith.files import (
    append_line,
    atomic,
    neighbour,
    read_json,
    remove_dead,
    sha256,
    write_json,
    write_text,
)
from arith.schemas import NEWEST

ROOT = Path(__file__).parents[1]


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


ADDS = """
import sys
from pathlib import Path
from arith.files import append_line, atomic
file, letter = Path(sys.argv[1]), sys.argv[2]
for number in range(300):
    append_line(file, letter * 2000)
    with atomic(file.with_name("whole")) as temporary:
        temporary.write_text(letter * 100_000)
"""


def test_writers_side_by_side_never_interleave(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    command = [sys.executable, "-c", ADDS, str(file)]
    writers = [subprocess.Popen([*command, letter], cwd=ROOT) for letter in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = file.read_text().splitlines()
    assert sorted(lines) == [letter * 2000 for letter in "abc" for _ in range(300)]
    assert (tmp_path / "whole").read_text() in [letter * 100_000 for letter in "abc"]
    assert {path.name for path in tmp_path.iterdir()} == {"lines", "whole"}


def test_two_of_one_process_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic(path) as ours, atomic(path) as theirs:
        ours.write_text("ours")
        theirs.write_text("theirs")  # the other's beginning does not take ours for a dead one's
        assert ours.read_text() == "ours"
    assert path.read_text() == "ours" and list(tmp_path.iterdir()) == [path]


def test_what_the_killed_left_goes_with_the_next_writing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    ours = neighbour(path).name
    number = f"-{os.getpid()}-"
    dead = ours.replace(number, "-4194305-")  # no process has that number
    earlier = ours  # of our number and not open: another process had it, as in a container
    living = ours.replace(number, f"-{os.getppid()}-")
    elsewhere = ours.replace(f".file.{ours[6:14]}", ".file.00000000")
    another = dead.replace(".file.", ".file.old.")
    for name in (dead, earlier, living, elsewhere, another):
        (tmp_path / name).touch()
    remove_dead(tmp_path, path.name)
    assert {file.name for file in tmp_path.iterdir()} == {living, elsewhere, another}
    write_text(path, "whole")
    assert path.read_text() == "whole"
    remove_dead(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {living, elsewhere, "file"}


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in range(5):  # bytes of "more\n" that find a place: as on a disk that is nearly full
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 + room, hard))
        try:
            with pytest.raises(Failure, match=f"cannot write {path}: "):
                append_line(path, "more")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_text() == "one\n"
    append_line(path, "more")
    assert path.read_text() == "one\nmore\n"
    with pytest.raises(Failure, match="cannot write"):
        append_line(tmp_path / "no" / "folder", "x")


def test_json_goes_and_comes(tmp_path: Path) -> None:
    content = {"schema": 1, "kind": "run", "name": "Peña", "x": 0.1, "none": None}
    write_json(tmp_path / "file", content)
    assert read_json(tmp_path / "file", "run") == content | {"schema": NEWEST["run"]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "file", {"kind": "run", "x": float("nan")})
    assert read_json(tmp_path / "file", "run")["x"] == 0.1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"", "corrupt: not JSON"),
        (b'{"schema": 1, "kind": "run"', "corrupt: not JSON"),
        (b"\xff\xfe\x00", "corrupt: not UTF-8"),
        (b"[" * 100_000, "corrupt: not JSON"),
        (b"[1]", "not a run of tape-arith"),
        (b"null", "not a run of tape-arith"),
        (b'{"schema": 1, "kind": "grid"}', "not a run of tape-arith"),
        (b'{"schema": 99, "kind": "run"}', "schema 99; this version reads schema"),
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
