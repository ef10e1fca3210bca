"""Write files atomically and read them with limits.

A file is written under a temporary name, synced, then renamed, so it is complete or absent. Input
is not trusted: a named pipe must not block a read, and a huge file must not fill the memory.
"""

import errno
import hashlib
import itertools
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

from pydantic_core import from_json

from tape_arith.arith.archives import on_disk
from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.machine import host_id, is_alive

# A grid of 700 digits and the metrics of 500,000 steps are smaller. Parsing JSON takes up to 35
# times the size of the file in memory: 1.2 GB at this limit.
_MOST_BYTES = 32 * 2**20
# The time to parse nested tables grows with the square of their depth.
_MOST_TOML_BYTES = 20_000

# Windows has neither of the first two, but opens files as text unless told otherwise.
_FLAGS = ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_NOT_WAITING = sum(getattr(os, name, 0) for name in _FLAGS)

_calls = itertools.count()


# ---- writing -------------------------------------------------------------------------------


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends without an error.

    First removes what killed writers of `path` left. The file is readable to whom the umask says,
    whoever writes it: safetensors makes its files private. Raises Failure, naming `path`, if
    writing fails or `path` is not a regular file; then no partial file is left.
    """
    temporary = temporary_path(path)
    check_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(path.parent, path.name)
        temporary.unlink(missing_ok=True)  # of a killed process that had our number
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # of a new file here
        yield temporary
        if temporary.stat().st_mode != mode:
            temporary.chmod(mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        # Where `path` cannot exist (name too long, parent is a file), neither can `temporary`.
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise Failure(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _sync_folder(folder: Path) -> None:
    """Let a rename in `folder` survive a power cut."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_replaceable(path: Path) -> None:
    """Raise Failure if a device, a pipe, a link or a folder would be replaced by a file.

    Whoever computes for long before it writes asks this first.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "no file"
        raise Failure(f"cannot write {path}: it is {kind}")


def temporary_path(path: Path) -> Path:
    """Return a path next to `path`, unique to this call, that names host and process id."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{next(_calls)}.partial")


def remove_stale_temporaries(folder: Path, name: str | None = None) -> None:
    """Remove temporary files in `folder` whose writer on this machine was killed.

    With `name`, only temporary files of that file. Files from other machines stay, because this
    machine does not know whether their writer is alive.
    """
    written = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{written}\.{_host()}-(\d+)-\d+\.partial")
    for file in folder.iterdir():
        match = pattern.fullmatch(file.name)
        if match and not is_alive(int(match[1])):
            remove(file)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@cache
def _host() -> str:
    return hashlib.sha256(host_id().encode()).hexdigest()[:8]


def slug(name: str) -> str:
    """Turn `name` into one component of a path, valid on every file system."""
    return re.sub(r"[^A-Za-z0-9.+=_-]", "@", name)


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises Failure if writing fails."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, text: str) -> None:
    """Append a line to `path`, whole or not at all. Raises Failure, naming `path`."""
    line = (text + "\n").encode()
    try:
        # One write in append mode, so that lines of two processes never mix.
        with open(path, "ab", buffering=0) as file:
            written = file.write(line)
            if written < len(line):
                os.truncate(path, os.fstat(file.fileno()).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


# ---- reading -------------------------------------------------------------------------------


@contextmanager
def open_file(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file, or a link to it, for reading; also one in an archive of runs.

    Raises Failure, naming the file, also for an error inside the block.
    """
    try:
        # A plain open() waits forever for the writer of a named pipe.
        descriptor = os.open(on_disk(path.parent) / path.name, os.O_RDONLY | _NOT_WAITING)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Failure(f"cannot read {path}: it is not a file")
        with open(descriptor, "rb") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise Failure(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_text(path: Path, limit: int = _MOST_BYTES) -> str:
    """Read a file of at most `limit` bytes as UTF-8.

    Raises Failure, naming the file; Corrupt if it is not UTF-8.
    """
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Failure(f"{path} is larger than the limit of {limit:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"{path} is corrupt: not UTF-8 ({error})") from error


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in pieces. Raises Failure if it cannot be read."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its parsed content.

    Raises Failure, naming the file, if it cannot be read; ValueError if it is not TOML.
    """
    text = read_text(path, _MOST_TOML_BYTES)
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError if it is invalid, nested too deep, or has NaN or Infinity."""
    return from_json(text, allow_inf_nan=False)
