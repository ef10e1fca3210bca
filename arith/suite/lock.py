"""One writer a folder: a lock file with a heartbeat, on any file system that machines share.

A dead holder is taken over: at once where its process is known to be gone, else when its heart has
not beaten for a minute. One that was only held up (a machine that stood still) finds before its
next write that the lock is another's, and writes nothing. No torch here.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from arith.errors import Failure
from arith.suite.folders import RunFolder

NAME = ".lock"
SECONDS_BETWEEN_BEATS = 10.0
DEAD_AFTER = 60.0
EXIT_BUSY = 75
"""EX_TEMPFAIL: nothing is wrong, run me again."""

P = ParamSpec("P")
R = TypeVar("R")


class Busy(Failure):
    """Somebody else is at work on this folder."""

    exit_code = EXIT_BUSY


def alone(
    function: Callable[Concatenate[RunFolder, P], R],
) -> Callable[Concatenate[RunFolder, P], R]:
    """For what writes the run that is its first argument: it holds the lock meanwhile."""

    @wraps(function)
    def locked(folder: RunFolder, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with hold(folder.path):
            return function(folder, *args, **kwargs)

    return locked


_held: dict[Path, str] = {}
"""The token of each folder that this process holds: a holder may hold it again."""


@contextmanager
def hold(folder: Path, work: str = "train") -> Iterator[None]:
    """Be the only process that writes `folder`; `work` says for what, to `status`. Errors: Busy
    where another one does; Failure where the disk refuses."""
    key = folder.resolve()
    if key in _held:
        yield
        return
    token = uuid.uuid4().hex[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _take(folder, token, work)
    except OSError as error:
        raise Failure(f"cannot write {folder}: {error.strerror or error}") from error
    _held[key] = token
    stop = threading.Event()
    threading.Thread(target=_beat, args=(folder, token, stop), daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        del _held[key]
        if _holder(folder).get("token") == token:
            (folder / NAME).unlink(missing_ok=True)
        with suppress(OSError):  # nothing was written: leave no empty folder
            folder.rmdir()


def confirm(folder: Path) -> None:
    """Before a write: that the lock, where one is held, is still ours. Errors: Busy."""
    token = _held.get(folder.resolve())
    if token is not None and _holder(folder).get("token") != token:
        raise Busy(f"{folder}: another process took it over while this one stood still")


def holder(folder: Path) -> str | None:
    """Who is at work on `folder`, in words; None where nobody is alive."""
    there = _holder(folder)
    ours = there.get("token") == _held.get(folder.resolve(), "")
    if not there or (not ours and _dead(folder, there, time.time())):
        return None
    return _words(there)


def _words(there: dict[str, Any]) -> str:
    return f"process {there.get('pid', '?')} on {str(there.get('host', '?')).split('/')[0]}"


def work(folder: Path) -> str | None:
    """What a living holder of `folder` is at work on: "train", or a grid's file; else None."""
    return str(_holder(folder).get("work", "")) if holder(folder) else None


def _take(folder: Path, token: str, work: str) -> None:
    content = json.dumps({"host": _host(), "pid": os.getpid(), "token": token, "work": work})
    for _ in range(2):
        with suppress(FileExistsError):
            descriptor = os.open(folder / NAME, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            try:
                os.write(descriptor, content.encode())
            finally:
                os.close(descriptor)
            return
        _bury(folder, token)
    raise Busy(f"{folder}: somebody else has just begun on it")


def _bury(folder: Path, token: str) -> None:
    """Remove the lock of a dead holder. Errors: Busy where it is alive."""
    there = _holder(folder)
    aside = folder / f"{NAME}.{token}.partial"
    aside.touch()
    now = aside.stat().st_mtime  # by the clock of the file system
    aside.unlink()
    if there and not _dead(folder, there, now):
        raise Busy(f"{folder} is being written by {_words(there)}: wait for it, or end it")
    with suppress(FileNotFoundError):
        os.rename(folder / NAME, aside)
        if _read(aside).get("token") != there.get("token"):  # somebody was faster
            os.rename(aside, folder / NAME)
            raise Busy(f"{folder}: somebody else has just begun on it")
        aside.unlink()


def _holder(folder: Path) -> dict[str, Any]:
    return _read(folder / NAME)


def _read(file: Path) -> dict[str, Any]:
    """What a lock says; "pid" alone is missing in one that is just being written."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except ValueError:
        return {"token": None}
    return content if isinstance(content, dict) else {"token": None}


def _dead(folder: Path, there: dict[str, Any], now: float) -> bool:
    try:
        silent = now - (folder / NAME).stat().st_mtime
    except OSError:
        return True
    if silent > DEAD_AFTER:
        return True
    return there.get("host") == _host() and not _alive(there.get("pid"))


def _alive(pid: object) -> bool:
    if pid == os.getpid():  # that of an earlier process: what we hold we do not ask for again
        return False
    try:
        os.kill(int(str(pid)), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):  # not ours to signal, but there
        return True
    return True


def _host() -> str:
    """Where process ids mean the same: the machine and, in containers, the namespace."""
    try:
        return f"{socket.gethostname()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _beat(folder: Path, token: str, stop: threading.Event) -> None:
    while not stop.wait(SECONDS_BETWEEN_BEATS):
        with suppress(OSError):
            if _holder(folder).get("token") != token:
                return
            os.utime(folder / NAME)
