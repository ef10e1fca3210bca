"""Every write that Python does below a folder, met just before it happens: to be killed there, or
to be refused. Writes of other languages (safetensors' tensors) are not met here: a full disk is
what those meet."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Watcher = Callable[[str, str], None]
"""Gets what is about to be done ("open", "write", "fsync", "rename", ...) and to which file. What
it raises comes out of the operation."""

_CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NAMES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.utime", "os.link")
_watching: list[tuple[str, Watcher]] = []
_heard: list[bool] = []


@contextmanager
def watched(folder: Path, watcher: Watcher) -> Iterator[None]:
    """Meanwhile `watcher` is called before every write below `folder`, of any thread."""
    if not _heard:  # a hook stays for as long as the process
        sys.addaudithook(_hear)
        _heard.append(True)
    write, fsync = os.write, os.fsync

    def watched_write(descriptor: int, data: Any) -> int:
        _by_number("write", descriptor)
        return write(descriptor, data)

    def watched_fsync(fd: Any) -> None:
        _by_number("fsync", fd)
        fsync(fd)

    os.write, os.fsync = watched_write, watched_fsync
    _watching.append((str(folder.resolve()) + os.sep, watcher))
    try:
        yield
    finally:
        _watching.pop()
        os.write, os.fsync = write, fsync


def _hear(event: str, details: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if event == "open":
        path, mode, flags = details
        writes = flags & _CREATES if isinstance(flags, int) else set(mode or "") & set("wax+")
        if writes:
            _tell("open", path)
    elif event in _NAMES:
        _tell(event.removeprefix("os."), details[0])


def _by_number(what: str, descriptor: int) -> None:
    if _watching:
        _tell(what, os.readlink(f"/proc/self/fd/{descriptor}"))


def _tell(what: str, path: object) -> None:
    if isinstance(path, str | bytes | os.PathLike):
        folder, watcher = _watching[-1]
        name = os.path.abspath(os.fsdecode(path))
        if (name + os.sep).startswith(folder):
            watcher(what, name)
