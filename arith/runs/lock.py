"""One writer a folder: a lock file with a heartbeat, on any file system that machines share.

A holder is taken over when it is gone: on its own machine that is known, so one that stands still
keeps its lock; seen from another, when its heart has not beaten for a minute. One that was only
held up (a machine that stood still) finds before its next write that the lock is another's, and
writes nothing. No torch here.
"""

import errno
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tape_arith.arith.errors import EXIT_AGAIN, Failure
from tape_arith.arith.files import (
    parse_json,
    read_text,
    remove,
    remove_stale_temporaries,
    temporary_beside,
)
from tape_arith.arith.machine import alive, born, host
from tape_arith.arith.runs.folder import RunFolder

NAME = ".lock"
SECONDS_BETWEEN_BEATS = 10.0
DEAD_AFTER = 60.0
MOST_BYTES = 10_000
EMPTY_AFTER = 5.0
"""Seconds after which a lock that says nothing is that of one who was killed while writing it."""

P = ParamSpec("P")
R = TypeVar("R")


class Busy(Failure):
    """Somebody else is at work on this folder."""

    exit_code = EXIT_AGAIN


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
        _take(folder, token, work)
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        raise Failure(f"cannot write {folder}: {error.strerror or error}") from error
    _held[key] = token
    stop = threading.Event()
    try:
        _begin_to_beat(folder, token, stop)
        yield
    finally:
        stop.set()
        del _held[key]
        with suppress(OSError):  # a disk that went read-only: the lock dies with this process
            if _holder(folder).get("token") == token:
                (folder / NAME).unlink(missing_ok=True)
            folder.rmdir()  # nothing was written: leave no empty folder


def _begin_to_beat(folder: Path, token: str, stop: threading.Event) -> None:
    """Errors: Failure where the system starts no more threads for this user."""
    try:
        threading.Thread(target=_beat, args=(folder, token, stop), daemon=True).start()
    except RuntimeError as error:
        raise Failure(
            f"cannot hold {folder}: {error}, see `ulimit -u`; free some, or wait"
        ) from error


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
    words = f"process {there.get('pid', '?')} on {str(there.get('host', '?')).split('/')[0]}"
    since = there.get("since")
    if isinstance(since, int | float):
        with suppress(OverflowError, OSError, ValueError):  # no moment at all
            words += f" since {datetime.fromtimestamp(since):%Y-%m-%d %H:%M:%S}"
    return words


def work(folder: Path) -> str | None:
    """What a living holder of `folder` is at work on: "train", or a grid's file; else None."""
    return str(_holder(folder).get("work", "")) if holder(folder) else None


def tidy(folder: Path) -> None:
    """Remove what one who was killed left in `folder`, where there is nothing else to do in it."""
    with suppress(OSError, Busy):  # a disk that is only read; somebody at work
        remove_stale_temporaries(folder)
        if (folder / NAME).exists():
            _bury(folder)


def _take(folder: Path, token: str, work: str) -> None:
    pid = os.getpid()
    content = {"host": host(), "pid": pid, "born": born(pid), "since": round(time.time())}
    line = json.dumps(content | {"token": token, "work": work}).encode()
    for _ in range(3):
        # A lock that is there, or a folder that went with its last holder: here, or while it was
        # looked at whether what is there is one.
        with suppress(FileExistsError, FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            remove_stale_temporaries(folder)
            descriptor = os.open(folder / NAME, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            try:
                if os.write(descriptor, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except BaseException:  # it would keep everybody out
                (folder / NAME).unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)
            return
        with suppress(FileNotFoundError):
            _bury(folder)
    if not folder.is_dir():
        raise Failure(f"cannot write {folder}: no such folder can be made")
    raise Busy(f"{folder}: somebody else has just begun on it")


def _bury(folder: Path) -> None:
    """Remove the lock of a dead holder. Errors: Busy where it is alive."""
    there, lock = _holder(folder), folder / NAME
    if there and not _dead(folder, there, _now(folder)):
        raise Busy(f"{folder} is being written by {_words(there)}: wait for it, or end it")
    aside = temporary_beside(lock)
    with suppress(FileNotFoundError):
        os.rename(lock, aside)
        if _read(aside).get("token") != there.get("token"):  # somebody was faster
            os.rename(aside, lock)
            raise Busy(f"{folder}: somebody else has just begun on it")
        remove(aside)


def _now(folder: Path) -> float:
    """By the clock of the file system, which beats are told by."""
    file = temporary_beside(folder / NAME)
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        file.unlink(missing_ok=True)


def _holder(folder: Path) -> dict[str, Any]:
    return _read(folder / NAME)


def _read(file: Path) -> dict[str, Any]:
    """What a lock says; nothing but "token" of one that is just being written."""
    try:
        content = parse_json(read_text(file, MOST_BYTES))
    except (Failure, ValueError):
        return {"token": None} if os.path.lexists(file) else {}
    return content if isinstance(content, dict) else {"token": None}


def _dead(folder: Path, there: dict[str, Any], now: float) -> bool:
    try:
        silent = now - (folder / NAME).stat().st_mtime
    except OSError:
        return True
    if silent < -DEAD_AFTER:  # a beat is never told by a clock that is so far ahead
        return True
    pid, start = there.get("pid"), there.get("born")
    if there.get("host") != host() or not isinstance(pid, int):
        return silent > (DEAD_AFTER if there.get("token") else EMPTY_AFTER)
    if pid == os.getpid():  # that of an earlier process: what we hold we do not ask for again
        return True
    if not alive(pid):
        return True
    # Another process may have been given the number, which not every system tells.
    return silent > DEAD_AFTER if start is None else born(pid) != start


def _beat(folder: Path, token: str, stop: threading.Event) -> None:
    while not stop.wait(SECONDS_BETWEEN_BEATS):
        with suppress(OSError):
            if _holder(folder).get("token") != token:
                return
            os.utime(folder / NAME)
