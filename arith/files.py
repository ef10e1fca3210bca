"""Files that are whole or not there: written beside their place, synced, then renamed."""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from arith.errors import Failure
from arith.processes import alive, host
from arith.reading import sha256
from arith.schemas import read_document, sealed

__all__ = [
    "append_line",
    "atomic",
    "neighbour",
    "read_json",
    "remove",
    "remove_dead",
    "sha256",
    "sync_folder",
    "write_json",
    "write_text",
]

_calls = itertools.count()
_open: set[Path] = set()
"""What this process is writing."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary neighbour of `path`; when the block ends well it takes `path`'s place.

    Errors: Failure, naming `path`, where the disk refuses; nothing half-written stays behind. What
    a kill left behind goes with the next writing of `path`.
    """
    temporary = neighbour(path)
    _open.add(temporary)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(path.parent, path.name)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        # Where `path` cannot be (its parent is a file, its name too long), nor can this.
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise Failure(f"cannot write {path}: {error.strerror or error}") from error
        raise
    finally:
        _open.discard(temporary)


def neighbour(path: Path) -> Path:
    """A temporary name beside `path`, which no other writer has: it tells of whom it is."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{next(_calls)}.partial")


def remove_dead(folder: Path, name: str | None = None) -> None:
    """Remove from `folder` what is left of writers that were killed, of every file or of that
    `name`, as far as one can know: what is another machine's stays."""
    written = ".+" if name is None else re.escape(name)
    ours = re.compile(rf"\.{written}\.{_host()}-(\d+)-\d+\.partial")
    for file in folder.iterdir():
        match = ours.fullmatch(file.name)
        if match and file not in _open and not _writes(int(match[1])):
            remove(file)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it; none need be there. Errors: OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _writes(pid: int) -> bool:
    # Of our own number and not open: of an earlier process, as in a container that started anew.
    return pid != os.getpid() and alive(pid)


@cache
def _host() -> str:
    return hashlib.sha256(host().encode()).hexdigest()[:8]


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, text: str) -> None:
    """Add a line to the end of `path`: all of it, or nothing. Errors: Failure, naming `path`."""
    line = (text + "\n").encode()
    try:
        # One write to the end: two processes that add to one file never share a line.
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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a document of ours, of the kind that it says, with its schema and checksum."""
    text = json.dumps(sealed(content, content["kind"]), indent=1, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """The document of `kind` in `path`, without its checksum. Errors: Failure, naming it; Corrupt
    where it is damaged."""
    return read_document(path, kind)
