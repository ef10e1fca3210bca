"""Which processes live, as far as this machine can tell."""

import os
import socket
from functools import cache
from pathlib import Path


@cache
def host() -> str:
    """Where process ids mean the same: the machine since its start and, in containers, the
    namespace; its name stands before the first slash."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux: the name has to do
        pass
    return "/".join(parts)


def born(pid: int) -> int | None:
    """When a process of this host started, in ticks of its clock: another one that was given the
    same number was born later. None where the system does not tell, or it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before the last parenthesis may hold anything; the state is the 3rd field.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def alive(pid: int) -> bool:
    """Whether a process of this host is there, and not only its exit code."""
    if Path("/proc/self/stat").exists():
        return born(pid) is not None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # not ours to signal, but there
        return True
    return True
