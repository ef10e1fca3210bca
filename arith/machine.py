"""Identify this machine, the resources of a process, and the version of tape-arith."""

import os
import re
import socket
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
ROOT = Path(__file__).resolve().parents[1]
"""The root of the source tree, unless the package is installed."""
_CHANGES = ("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
COMMIT_FILE = Path(__file__).with_name("commit.txt")
"""The file with the commit of a wheel or source archive; a checkout has none."""


@cache
def host_id() -> str:
    """Identify the scope of process ids: host name, boot id and, for containers, PID namespace.

    Equal texts mean that a process id refers to the same process.
    """
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux: only the name is known
        pass
    return "/".join(parts)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs on this machine; a zombie does not count.

    On Windows all count: looking at one by its number would end it. Leases expire anyway.
    """
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:  # a process of another user
        return True
    except (OSError, OverflowError):
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return True
    # The state follows the last parenthesis; the name before it may hold any character.
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def usable_cores() -> float:
    """Return the number of cores that affinity and cgroup quota grant this process."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    try:
        quota, period = (_CGROUP / "cpu.max").read_text(encoding="ascii").split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):  # "max": no limit
        return cores


def available_memory() -> int | None:
    """Return the bytes that the system and cgroup still grant this process; None if unknown."""
    try:
        available = 1024 * int(_field(_MEMINFO, "MemAvailable:"))
    except (OSError, ValueError, KeyError):  # not Linux
        return None
    try:
        limit, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        # The cache of files counts as used, but can be freed.
        return min(available, limit - used + int(_field(_CGROUP / "memory.stat", "inactive_file")))
    except (OSError, ValueError, KeyError):  # "max": no limit
        return available


def _field(file: Path, name: str) -> str:
    """Return the word after `name` in a file with a name per line. Raises KeyError."""
    return dict(line.split()[:2] for line in file.read_text("ascii").splitlines())[name]


def project() -> dict[str, Any] | None:
    """Return the table [project] of pyproject.toml; None where the package is installed."""
    file = ROOT / "pyproject.toml"
    if not file.exists():
        return None
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return table


def own_version() -> str:
    """Return the version of the source tree if it exists, else the installed version."""
    # Metadata of an editable installation may be older than the tree.
    table = project()
    return str(table["version"]) if table is not None else version("tape-arith")


def commit() -> str | None:
    """Return the commit of this code, with a "+" if files differ from it; None if unknown.

    Results do not count: drawing one table would mark all that are drawn after it.
    """
    if COMMIT_FILE.exists():
        return COMMIT_FILE.read_text(encoding="ascii").strip()
    if project() is None:  # a repository around an installed package is another project's
        return None
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(*_CHANGES) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def datasheet(name: str) -> float | None:
    """Look up a GPU's bfloat16 FLOP/s without sparsity on its datasheet; None if unknown.

    >>> datasheet("NVIDIA H200"), datasheet("NVIDIA H100 PCIe")
    (989000000000000.0, None)
    """
    # The PCIe, NVL and GH variants have datasheets of their own.
    return 989e12 if re.search("H[12]00", name) and not re.search("PCIe|NVL|GH", name) else None
