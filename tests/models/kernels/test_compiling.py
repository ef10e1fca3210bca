"""Compile the kernels for a GPU, on a machine without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SHARED = 99 * 1024  # bytes that a program may have on the GPUs of capability 8.6 and 8.9


@pytest.mark.parametrize("longest", [64, 124, 244])
@pytest.mark.parametrize("values", [1, 3])
def test_for_hopper(values: int, longest: int, tmp_path: Path) -> None:
    """No register is spilled, tiles of 64 use its wide products, and smaller GPUs have room."""
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    program = [sys.executable, "-m", "tests.helpers.kernel_compiler"]
    done = subprocess.run(
        [*program, "bfloat16", str(values), str(longest)],
        cwd=ROOT,
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(compiled) == {64: 2, 124: 4, 244: 3}[longest]
    for kernel in compiled:
        assert kernel["stack"] == 0 and kernel["wgmma"] > 0, kernel
        assert kernel["shared"] <= SHARED, kernel
