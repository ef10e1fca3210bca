"""Which processes live, and which cores and how much memory this process may use."""

import os
import socket
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


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
