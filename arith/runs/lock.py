"""One writer a folder: a lease on a lock file, on any file system that machines share.

A holder refreshes its lease from a thread. The lease of a process that is gone is taken over at
once on its own machine, and after LEASE seconds without a refresh from another one. A holder that
stood still for so long may lose its lease while it lives: it finds out before its next write, and
writes nothing. No torch here.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from tape_arith.arith.errors import EXIT_AGAIN, Failure
from tape_arith.arith.files import read_text, remove_stale_temporaries
from tape_arith.arith.machine import is_alive

if TYPE_CHECKING:
    from tape_arith.arith.runs.folder import RunFolder

NAME, ACTIVITY = ".lock", ".activity"
LEASE = 60.0
"""Seconds without a refresh after which another process may take the lock."""
_ATTEMPT, _MARGIN, _POLL = 0.2, 5.0, 0.05

P = ParamSpec("P")
R = TypeVar("R")


class Busy(Failure):
    """Another process is at work on this folder."""

    exit_code = EXIT_AGAIN


_held: dict[Path, SoftFileLease] = {}
"""The folders that this process has locked."""


def locked(
    function: "Callable[Concatenate[RunFolder, P], R]",
) -> "Callable[Concatenate[RunFolder, P], R]":
    """Decorate a function that writes the run of its first argument: it locks the folder."""

    @wraps(function)
    def with_lock(folder: "RunFolder", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with lock_folder(folder.path):
            return function(folder, *args, **kwargs)

    return with_lock


@contextmanager
def lock_folder(folder: Path, activity: str = "train") -> Iterator[None]:
    """Be the only process that writes `folder`, which is made; `activity` is shown to others.

    A process may lock a folder that it has locked. Raises Busy if another process has; Failure if
    the disk refuses.
    """
    key = folder.resolve()
    if key in _held:
        yield
        return
    lease = SoftFileLease(key / NAME, lease_duration=LEASE, thread_local=False)
    try:
        _acquire(lease, folder)
        _held[key] = lease
        _write_activity(folder, activity)
        yield
    finally:
        _held.pop(key, None)
        with suppress(OSError):  # a disk that went read-only: the lease ends with this process
            if _is_ours(lease):
                (folder / ACTIVITY).unlink(missing_ok=True)
            lease.release()
        with suppress(OSError):
            folder.rmdir()  # nothing was written: leave no empty folder


def check_lock(folder: Path) -> None:
    """Check before a write that a lock on `folder`, if this process has one, is still its own.

    Raises Busy.
    """
    lease = _held.get(folder.resolve())
    if lease is not None and not _is_ours(lease):
        raise Busy(f"{folder}: another process took it over while this one stood still")


def activity(folder: Path) -> str | None:
    """Return what a living process that has locked `folder` does, None if there is none."""
    lease = _held.get(folder.resolve())
    if lease is None:
        owner = SoftFileLease(folder / NAME, lease_duration=LEASE).owner
        if owner is None or _is_silent(folder):
            return None
        if _host_name(owner.hostname) == socket.gethostname() and not is_alive(owner.pid):
            return None
    return _read_activity(folder)


def remove_stale(folder: Path) -> None:
    """Remove what a killed process left in `folder`, if nobody is at work there."""
    with suppress(OSError, LeaseSettingsMismatch):  # a disk that is only read; somebody at work
        remove_stale_temporaries(folder)
        if (folder / NAME).exists():
            with SoftFileLease(folder / NAME, lease_duration=LEASE, timeout=_ATTEMPT):
                (folder / ACTIVITY).unlink(missing_ok=True)


def _acquire(lease: SoftFileLease, folder: Path) -> None:
    try:
        for _ in range(3):
            # The last holder removes an empty folder, at any moment of this.
            with suppress(FileNotFoundError):
                folder.mkdir(parents=True, exist_ok=True)
                remove_stale_temporaries(folder)
                silent = _is_silent(folder)
                if silent and (folder / NAME).lstat().st_size == 0:
                    lease.force_break()  # its writer was killed before it could say who it is
                if (
                    lease.is_lock_held_by_us
                ):  # of this process, which has not locked it: its work was broken off
                    lease.force_break()
                # To take a silent lease over, filelock must watch it for all of its duration.
                lease.acquire(LEASE + _MARGIN if silent else _ATTEMPT, _POLL)
                return
    except (Timeout, LeaseSettingsMismatch):
        raise Busy(f"{folder} is being written by {_describe(lease, folder)}") from None
    except OSError as error:
        raise Failure(f"cannot write {folder}: {error.strerror or error}") from error
    except RuntimeError as error:  # no thread can be started
        raise Failure(
            f"cannot lock {folder}: {error}, see `ulimit -u`; free some, or wait"
        ) from error
    raise Failure(f"cannot write {folder}: no such folder can be made")


def _is_ours(lease: SoftFileLease) -> bool:
    owner = lease.owner
    return owner is not None and owner.token == lease.token


def _is_silent(folder: Path) -> bool:
    """Whether the lock was not refreshed for a lease, or at a time that is still to come."""
    try:
        return abs(time.time() - (folder / NAME).lstat().st_mtime) > LEASE
    except OSError:
        return False


def _describe(lease: SoftFileLease, folder: Path) -> str:
    owner = lease.owner
    if owner is None:  # it has just begun, or ended
        return "another process: try again"
    try:
        since = datetime.fromtimestamp((folder / ACTIVITY).stat().st_mtime)
        words = f" ({_read_activity(folder)}) since {since:%Y-%m-%d %H:%M:%S}"
    except OSError:
        words = ""
    host = _host_name(owner.hostname)
    return f"process {owner.pid} on {host}{words}: wait for it, or end it"


def _host_name(recorded: str) -> str:
    # filelock adds the namespace of process ids after a question mark.
    return recorded.partition("?")[0]


def _write_activity(folder: Path, activity: str) -> None:
    try:
        (folder / ACTIVITY).write_text(activity)
    except OSError as error:
        raise Failure(f"cannot write {folder}: {error.strerror or error}") from error


def _read_activity(folder: Path) -> str:
    with suppress(Failure):
        return read_text(folder / ACTIVITY, limit=1_000)
    return ""
