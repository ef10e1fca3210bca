"""Memory by the system's own account: of a block, and of a tree of processes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tape_arith.arith.bench.memory import TreeMemory, descendants, high_water, peak_memory

LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
MB = 1_000_000


@LINUX
def test_the_peak_is_of_the_block_alone() -> None:
    def use(size: int) -> int:
        return len(b"x" * size)

    use(400 * MB)  # before: the high-water mark of the process is past what comes
    with peak_memory() as small:
        pass
    with peak_memory() as large:
        use(150 * MB)
    assert small.before and small.bytes and large.before and large.bytes
    assert small.bytes - small.before < 20 * MB
    assert 145 * MB <= large.bytes - large.before < 200 * MB


CHILD = """
import subprocess, sys
mine = b"x" * 60_000_000
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
sys.stdin.readline() if len(sys.argv) == 1 else None
"""


@LINUX
def test_the_memory_of_a_tree_counts_every_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", CHILD, CHILD], stdin=subprocess.PIPE)
    with TreeMemory(process.pid, every=0.005) as memory:
        deadline = time.monotonic() + 60
        while (memory.bytes or 0) < 120 * MB:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        assert descendants(process.pid)
        process.communicate(b"\n")
    assert process.returncode == 0
    assert memory.processes == 2
    assert memory.bytes is not None and 120 * MB <= memory.bytes < 220 * MB
    assert high_water(process.pid) is None  # gone
