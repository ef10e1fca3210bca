"""Which processes of this machine live, and which cores and memory this process may use."""

import os
import socket
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@cache
def host_id() -> str:
    """Return a text that is equal where process ids mean the same.

    It names the machine since its start and, in containers, the namespace of process ids.
    """
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux: the name has to do
        pass
    return "/".join(parts)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The name in front of the last parenthesis may hold anything.
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        if Path("/proc/self/stat").exists():
            return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        return True
    return True


def usable_cores() -> float:
    """The cores that this process may use, by its affinity and its control group's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota, *rest = _cgroup("cpu.max", "cpu/cpu.cfs_quota_us") or ["max"]
    # Version 1 of control groups has a file for each.
    period = (rest or _cgroup("cpu/cpu.cfs_period_us") or ["100000"])[0]
    limited = quota.isdecimal() and period.isdecimal() and int(period) > 0
    return min(cores, int(quota) / int(period)) if limited else cores


def available_memory() -> tuple[int, int | None]:
    """Bytes that this process may still take, and the limit of its control group, if any."""
    limit = (_cgroup("memory.max", "memory/memory.limit_in_bytes") or ["max"])[0]
    used = (_cgroup("memory.current", "memory/memory.usage_in_bytes") or ["0"])[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Version 1 writes "no limit" as a number near 2^63.
    if not limit.isdecimal() or int(limit) > 2**60:
        return free, None
    return min(free, int(limit) - int(used if used.isdecimal() else 0)), int(limit)


def _cgroup(*files: str) -> list[str]:
    """The words of the first of these files of the control group that exists."""
    for file in files:
        try:
            return (CGROUPS / file).read_text(encoding="ascii").split()
        except OSError:
            continue
    return []
