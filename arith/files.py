"""Atomic writes and bounded reads.

Files are written beside their place, synced, then renamed: they are whole or not there. What a
user sends us is not trusted: a named pipe in a file's place must not hang, and a huge file must not
fill the memory.
"""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.machine import host_id, is_alive

MOST_BYTES = 32 * 2**20
"""Limit of a file that is read whole. As JSON it takes up to 35 times as much memory: 1.2 GB. A
grid to 700 digits is smaller, and so are the metrics of 500,000 steps."""
MOST_TOML_BYTES = 20_000
"""TOML is written by people. Nested tables cost a time that grows with the square of their depth.
"""
MOST_INTEGER = 2**63 - 1

_calls = itertools.count()
_being_written: set[Path] = set()
"""Temporary files of this process."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends without an error.

    Removes what a killed writer of `path` left. Raises Failure, naming `path`, if the disk refuses;
    nothing half-written stays behind.
    """
    temporary = temporary_beside(path)
    _being_written.add(temporary)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(path.parent, path.name)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        # If `path` cannot exist (its parent is a file, its name too long), nor can this.
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise Failure(f"cannot write {path}: {error.strerror or error}") from error
        raise
    finally:
        _being_written.discard(temporary)


def temporary_beside(path: Path) -> Path:
    """Return a temporary name beside `path`, unique to this writer, that names its process."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{next(_calls)}.partial")


def remove_stale_temporaries(folder: Path, name: str | None = None) -> None:
    """Remove temporary files in `folder` whose writer on this machine was killed.

    Takes those of the file `name`, by default of every file. Another machine's stay, because nobody
    here can tell whether their writer lives.
    """
    written = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{written}\.{_host()}-(\d+)-\d+\.partial")
    for file in folder.iterdir():
        match = pattern.fullmatch(file.name)
        if match and file not in _being_written and not _is_other_writer(int(match[1])):
            remove(file)


def remove(path: Path) -> None:
    """Remove a file or a folder and its content, if it exists. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_other_writer(pid: int) -> bool:
    # Our own number on a file that we do not write: an earlier process had it, as happens in
    # containers that are started again.
    return pid != os.getpid() and is_alive(pid)


@cache
def _host() -> str:
    return hashlib.sha256(host_id().encode()).hexdigest()[:8]


def sync_folder(folder: Path) -> None:
    """Flush `folder` to the disk, so that a rename inside it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises Failure if the disk refuses."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, text: str) -> None:
    """Append a line to `path`, whole or not at all. Raises Failure, naming `path`."""
    line = (text + "\n").encode()
    try:
        # One write in append mode: lines of two processes never mix.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            written = os.write(descriptor, line)
            if written < len(line):
                os.truncate(descriptor, os.fstat(descriptor).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


def open_file(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading. Raises Failure, naming it."""
    try:
        # A plain open() of a named pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise Failure(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Failure(f"cannot read {path}: it is not a file")
    return open(descriptor, "rb")


def read_bytes(path: Path, limit: int = MOST_BYTES) -> bytes:
    """Read a file of at most `limit` bytes. Raises Failure, naming it."""
    with open_file(path) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > limit:
        raise Failure(f"{path} is larger than the {limit:,} bytes that are read of such a file")
    return content


def read_text(path: Path, limit: int = MOST_BYTES) -> str:
    """Read a file as UTF-8. Raises Failure, naming it; Corrupt if it is not UTF-8."""
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"{path} is corrupt: not UTF-8 ({error})") from error


def parse_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its content.

    Raises Failure, naming it, if it cannot be read; ValueError if it is not TOML.
    """
    text = read_text(path, MOST_TOML_BYTES)
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError if it is none, nested too deep, or holds NaN or Infinity."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in pieces. Raises Failure if it cannot be read."""
    with open_file(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror or error}") from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
