"""`generate` holds no more memory for more problems, by the operating system's account."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.child_processes import COMMAND_LINE

MOST_MIB = 160
"""1.5 times what 2,000,000 problems of mini take (102 MiB, measured on Linux)."""
# A process that is small itself: Linux counts to a child what its parent held when it began.
PEAK = """
import os, sys
child = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def peak_mib(folder: Path, count: int) -> float:
    """The most memory that making so many problems holds at once."""
    command = (*COMMAND_LINE, "generate", "--preset", "mini", "--count", str(count))
    measured = subprocess.run(
        [sys.executable, "-c", PEAK, *command, "--out", str(count)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    code, most = map(int, measured.stdout.splitlines()[-1].split())
    assert code == 0, measured.stderr
    return most / (1024 if sys.platform == "linux" else 1024**2)


@pytest.mark.slow
def test_generate_holds_no_more_for_more_problems(tmp_path: Path) -> None:
    assert 10 < peak_mib(tmp_path, 1_000) < peak_mib(tmp_path, 1_000_000) < MOST_MIB
