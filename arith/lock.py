"""One writer a folder: a lease on a lock file, on any file system that machines share.

A holder refreshes its lease from a thread. The lease of a process that is gone is taken over at
once on its own machine, and after LEASE seconds without a refresh from another one. A holder that
stood still for so long may lose its lease while it lives: it finds out before its next write, and
writes nothing. Never imports torch.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from tape_arith.arith.errors import EXIT_AGAIN, Failure
from tape_arith.arith.files import read_text, remove_stale_temporaries
from tape_arith.arith.machine import is_alive

NAME, ACTIVITY = ".lock", ".activity"
LEASE = 60.0
"""Seconds without a refresh after which another process may take the lock."""
_ATTEMPT, _MARGIN, _POLL = 0.2, 5.0, 0.05

_held: dict[Path, SoftFileLease] = {}
"""The folders that this process has locked."""


class Busy(Failure):
    """Another process is at work on this folder."""

    exit_code = EXIT_AGAIN


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
        try:
            _acquire(lease, folder)
            _held[key] = lease
            (folder / ACTIVITY).write_text(activity)
        except (Timeout, LeaseSettingsMismatch):
            raise Busy(f"{folder} is being written by {_describe(lease, folder)}") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            reason = getattr(error, "strerror", None) or error
            raise Failure(f"cannot write {folder}: {reason}") from error
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
    owner = SoftFileLease(folder / NAME, lease_duration=LEASE).owner
    if owner is None or _is_silent(folder):
        return None
    if _host_name(owner.hostname) == socket.gethostname() and not is_alive(owner.pid):
        return None
    with suppress(Failure):
        return read_text(folder / ACTIVITY, limit=1_000)
    return ""


def _acquire(lease: SoftFileLease, folder: Path) -> None:
    for attempt in range(3):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_stale_temporaries(folder)
            silent = _is_silent(folder)
            # Its writer was killed before it could say who it is, or a call of this process, which
            # has not locked it, was broken off.
            if (silent and not (folder / NAME).lstat().st_size) or lease.is_lock_held_by_us:
                lease.force_break()
            # To take a silent lease over, filelock must watch it for all of its duration.
            lease.acquire(LEASE + _MARGIN if silent else _ATTEMPT, _POLL)
            return
        except FileNotFoundError:  # the last holder removes an empty folder, at any moment of this
            if attempt == 2:
                raise


def _is_ours(lease: SoftFileLease) -> bool:
    owner = lease.owner
    return owner is not None and owner.token == lease.token


def _is_silent(folder: Path) -> bool:
    """Tell whether the lock was not refreshed for a lease, or at a time that is still to come."""
    try:
        return abs(time.time() - (folder / NAME).lstat().st_mtime) > LEASE
    except OSError:
        return False


def _describe(lease: SoftFileLease, folder: Path) -> str:
    owner = lease.owner
    if owner is None:  # it has just begun, or ended
        return "another process: try again"
    work = ""
    with suppress(OSError, Failure):
        since = datetime.fromtimestamp((folder / ACTIVITY).stat().st_mtime)
        work = f" ({read_text(folder / ACTIVITY, limit=1_000)}) since {since:%Y-%m-%d %H:%M:%S}"
    return f"process {owner.pid} on {_host_name(owner.hostname)}{work}: wait for it, or end it"


def _host_name(recorded: str) -> str:
    # filelock adds the namespace of process ids after a question mark.
    return recorded.partition("?")[0]
