"""`generate` holds no more memory for more problems, by the operating system's account."""

import re
import sys
from pathlib import Path

import pytest

from tests.helpers.child_processes import start, wait

MOST_MIB = 160
"""1.5 times what 2,000,000 problems of mini take (102 MiB, measured on Linux)."""
PEAK = """
import re
from pathlib import Path
from tape_arith import cli
try:
    cli.main()
finally:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def peak_mib(folder: Path, count: int) -> float:
    """The most memory that making so many problems holds at once."""
    arguments = ("generate", "--preset", "mini", "--count", count, "--out", count)
    program, root = [sys.executable, "-c", PEAK], str(Path(__file__).parents[2])
    code, output = wait(start(arguments, folder, program, PYTHONPATH=root))
    assert code == 0, output
    return int(re.findall(r"^\d{4,}$", output, re.M)[-1]) / 1024


@pytest.mark.slow
def test_generate_holds_no_more_for_more_problems(tmp_path: Path) -> None:
    assert 10 < peak_mib(tmp_path, 1_000) < peak_mib(tmp_path, 1_000_000) < MOST_MIB
