"""Files that are whole or not there."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tape_arith.arith.errors import Failure
from tape_arith.arith.files import (
    append_line,
    atomic,
    read_text,
    remove_stale_temporaries,
    sha256,
    temporary_path,
    write_text,
)
from tests.helpers.tiny_runs import done, settings

ROOT = Path(__file__).parents[1]


def test_a_crash_inside_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for before in ([], [path]):
        with pytest.raises(ZeroDivisionError), atomic(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == before
        write_text(path, "whole")
    assert path.read_text() == "whole"


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    """What is there and no file is kept; what cannot be there is named."""
    write_text(tmp_path / "file", "kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    kinds = {"folder": "a folder", "link": "a link", "nowhere": "a link", "pipe": "no file"}
    kinds |= {"/dev/null": "no file", "file/a/b": "", "x" * 300: ""}
    for name, kind in kinds.items():
        path = tmp_path / name
        with pytest.raises(Failure, match=rf"{path}: .*{kind}"):
            write_text(path, "x")
    assert (tmp_path / "file").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    write_text(path, "kept")
    monkeypatch.setattr(os, function, full_disk)
    with pytest.raises(Failure, match=r"file: No space"):
        write_text(path, "other")
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "kept"


ADDS = """
import sys
from pathlib import Path
from tape_arith.arith.files import append_line, atomic
file, letter = Path(sys.argv[1]), sys.argv[2]
for number in range(40):
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
    assert sorted(lines) == [letter * 2000 for letter in "abc" for _ in range(40)]
    assert (tmp_path / "whole").read_text() in [letter * 100_000 for letter in "abc"]
    assert {path.name for path in tmp_path.iterdir()} == {"lines", "whole"}


def test_two_writers_in_one_process_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with atomic(path) as first, atomic(path) as second:
        assert first.parent == path.parent  # a rename between file systems is a copy
        second.write_text("second")
        first.write_text("first")  # beginning the second did not remove it as stale
        assert not path.exists()
    assert path.read_text() == "first" and list(path.parent.iterdir()) == [path]


def test_temporaries_of_killed_writers_go_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    own = temporary_path(path).name
    number = f"-{os.getpid()}-"
    dead = own.replace(number, "-4194305-")  # no process has that number
    living = own.replace(number, f"-{os.getppid()}-")
    elsewhere = own.replace(f".file.{own[6:14]}", ".file.00000000")
    of_another_file = dead.replace(".file.", ".file.old.")
    for name in (dead, own, living, elsewhere, of_another_file):
        (tmp_path / name).touch()
    write_text(path, "whole")
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {own, living, elsewhere, of_another_file, "file"}
    remove_stale_temporaries(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {own, living, elsewhere, "file"}


def test_a_line_is_appended_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in range(5):  # bytes of "more\n" that fit, as on a disk that is nearly full
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 + room, hard))
        try:
            with pytest.raises(Failure, match=f"write {path}:"):
                append_line(path, "more")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_text() == "one\n"
    append_line(path, "more")
    assert path.read_text() == "one\nmore\n"


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # a plain open would wait for ever
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (*(tmp_path / name for name in ("missing", "pipe", "loop", "device")), tmp_path):
        for read in (read_text, sha256):
            with pytest.raises(Failure, match=f"read {path}"):
                read(path)


def test_the_umask_says_who_may_read_what_commands_write(here: Path) -> None:
    """Whichever library writes: weights, arrays, tables, figures."""
    before = os.umask(0o007)
    try:
        done("train", "--pe", "rope", *settings())
        done("export", "runs/mini/rope/seed-0")
        done("generate", *settings(), "--workers", 1)
        done("generate", *settings(), "--workers", 1, "--format", "parquet", "--out", "p.parquet")
        done("heatmap", "--compare", "rope", "--out", "f.png")
        done("leaderboard", "--out", "b.md")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in here.rglob("*") if path.is_file()}
    assert {path.suffix for path in modes} >= {".safetensors", ".json", ".png", ".parquet", ".npy"}
    assert {path: mode for path, mode in modes.items() if mode != 0o660} == {}
