"""Every write that Python makes below a folder, announced just before it happens.

Writes of other languages (the tensors of safetensors) are not seen: limit the size of files
(`RLIMIT_FSIZE`) to refuse those. Works where /proc names open files.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Watcher = Callable[[str, str], None]
"""Gets the operation ("open", "write", "rename", ...) and the path; may raise."""

_CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.utime", "os.link")
_watchers: list[tuple[str, Watcher]] = []
_hooked: list[bool] = []


@contextmanager
def watched(folder: Path, watcher: Watcher) -> Iterator[None]:
    """Call `watcher` before every write below `folder`, of any thread."""
    if not _hooked:  # an audit hook cannot be removed
        sys.addaudithook(_on_event)
        _hooked.append(True)
    write, fsync = os.write, os.fsync

    def watched_write(descriptor: int, data: Any) -> int:
        _announce("write", os.readlink(f"/proc/self/fd/{descriptor}"))
        return write(descriptor, data)

    def watched_fsync(fd: Any) -> None:
        _announce("fsync", os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    os.write, os.fsync = watched_write, watched_fsync
    _watchers.append((str(folder.resolve()) + os.sep, watcher))
    try:
        yield
    finally:
        _watchers.pop()
        os.write, os.fsync = write, fsync


@dataclass
class Refusal:
    """The writes that were made so far, and the one that was refused."""

    count: int = 0
    operation: str = ""
    path: str = ""

    def names(self) -> list[str]:
        """Return the names that an error may give the file: its own or its folder's."""
        path = Path(os.path.relpath(self.path))
        final_name = re.sub(r"^\.(.+)\.[\w-]+\.partial$", r"\1", path.name)
        return [final_name, *([] if path.parent == Path() else [str(path.parent)])]


@contextmanager
def refusing(folder: Path, number: int, error: int = errno.ENOSPC) -> Iterator[Refusal]:
    """Let write `number` below `folder` fail with `error`, a number of `errno`; 0 refuses none."""
    refusal = Refusal()

    def refuse(operation: str, path: str) -> None:
        refusal.count += 1
        if refusal.count == number:
            refusal.operation, refusal.path = operation, path
            # The system names no file where a descriptor is given.
            names = () if operation in ("write", "fsync") else (path,)
            raise OSError(error, os.strerror(error), *names)

    with watched(folder, refuse):
        yield refusal


def _on_event(event: str, details: tuple[Any, ...]) -> None:
    if not _watchers:
        return
    if event == "open":
        path, mode, flags = details
        writes = flags & _CREATES if isinstance(flags, int) else set(mode or "") & set("wax+")
        if writes:
            _announce("open", path)
    elif event in _EVENTS:
        _announce(event.removeprefix("os."), details[0])


def _announce(operation: str, path: object) -> None:
    if _watchers and isinstance(path, str | bytes | os.PathLike):
        folder, watcher = _watchers[-1]
        name = os.path.abspath(os.fsdecode(path))
        if (name + os.sep).startswith(folder):
            watcher(operation, name)
