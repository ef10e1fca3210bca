"""Allow one writer per folder by a lease on a lock file, on any file system that machines share.

A thread of the holder refreshes the lease. When the holder has died, a process on its machine takes
the lease at once, a process on another machine after LEASE seconds without a refresh. A holder that
is suspended for so long may lose the lease while it is alive; then `check_lock` raises an error
before its next write.
"""

import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from tape_arith.arith.archives import check_writable
from tape_arith.arith.errors import EXIT_AGAIN, Failure
from tape_arith.arith.files import read_text, remove_stale_temporaries, write_text
from tape_arith.arith.machine import is_alive

NAME, ACTIVITY = ".lock", ".activity"
LEASE = 60.0
"""Seconds without a refresh after which another process may take the lock."""
# Seconds: to wait for a refreshed lease; to wait beyond LEASE for a silent one; between attempts.
_ATTEMPT, _MARGIN, _POLL = 0.2, 5.0, 0.05

_held: dict[Path, SoftFileLease] = {}
"""The leases of this process by folder."""


class Busy(Failure):
    """Another process is working on this folder."""

    exit_code = EXIT_AGAIN


@contextmanager
def lock_folder(folder: Path, activity: str = "train") -> Iterator[None]:
    """Lock `folder`, created if missing, and show other processes the `activity`.

    A process may lock a folder twice. Raises Busy if another process holds the lock; Failure if
    writing fails or the folder holds a link; UsageError if it is in an archive.
    """
    check_writable(folder)
    key = folder.resolve()
    if key in _held:
        yield
        return
    lease = SoftFileLease(key / NAME, lease_duration=LEASE, thread_local=False)
    try:
        try:
            _acquire(lease, folder)
            _held[key] = lease
            write_text(folder / ACTIVITY, activity)
        except (Timeout, LeaseSettingsMismatch):
            raise Busy(f"{folder} is being written by {_describe(lease, folder)}") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            reason = getattr(error, "strerror", None) or error
            raise Failure(f"cannot write {folder}: {reason}") from error
        yield
    finally:
        _held.pop(key, None)
        with suppress(OSError):  # if the disk became read-only, the lease ends with this process
            if _is_ours(lease):
                (folder / ACTIVITY).unlink(missing_ok=True)
            lease.release()
        with suppress(OSError):
            folder.rmdir()  # nothing was written: leave no empty folder


def check_lock(folder: Path) -> None:
    """Check, before a write, that this process still holds the lock on `folder` if it took one.

    Raises Busy if another process has taken the lock over, Failure if the folder is gone.
    """
    lease = _held.get(folder.resolve())
    if lease is not None and not _is_ours(lease):
        if not folder.exists():
            raise Failure(f"{folder} was moved or removed while this process was writing it")
        raise Busy(f"{folder}: another process took it over while this one stood still")


def activity(folder: Path) -> str | None:
    """Return the activity of the live process that holds the lock; None if there is none."""
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
            _check_entries(folder)
            remove_stale_temporaries(folder)
            silent = _is_silent(folder)
            # The writer was killed before it wrote its identity, or an earlier call of this process
            # was interrupted while it took the lease.
            if (silent and not (folder / NAME).lstat().st_size) or lease.is_lock_held_by_us:
                lease.force_break()
            # filelock takes over a silent lease only after watching it for LEASE seconds.
            lease.acquire(LEASE + _MARGIN if silent else _ATTEMPT, _POLL)
            return
        # The last holder has just removed the empty folder, after or before mkdir saw it.
        except (FileNotFoundError, FileExistsError):
            if attempt == 2:
                raise


def _check_entries(folder: Path) -> None:
    """Raise Failure for a link in `folder`, a pipe or a device.

    Writes and deletions would leave the folder; a lock that is a pipe would never be free.
    """
    for path in folder.iterdir():
        if path.is_symlink():
            raise Failure(
                f"{path} is a link, and what is written to {folder} stays in it: put the folder or "
                "file itself there"
            )
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise Failure(f"{path} is neither a file nor a folder: remove it")


def _is_ours(lease: SoftFileLease) -> bool:
    owner = lease.owner
    return owner is not None and owner.token == lease.token


def _is_silent(folder: Path) -> bool:
    """Tell whether the last refresh is more than LEASE seconds in the past or the future."""
    try:
        return abs(time.time() - (folder / NAME).lstat().st_mtime) > LEASE
    except OSError:
        return False


def _describe(lease: SoftFileLease, folder: Path) -> str:
    owner = lease.owner
    if owner is None:  # the lock was taken or released just now
        return "another process: try again"
    work = ""
    with suppress(OSError, Failure):
        since = datetime.fromtimestamp((folder / ACTIVITY).stat().st_mtime)
        work = f" ({read_text(folder / ACTIVITY, limit=1_000)}) since {since:%Y-%m-%d %H:%M:%S}"
    return f"process {owner.pid} on {_host_name(owner.hostname)}{work}: wait for it, or end it"


def _host_name(recorded: str) -> str:
    # filelock appends a question mark and the PID namespace.
    return recorded.partition("?")[0]
