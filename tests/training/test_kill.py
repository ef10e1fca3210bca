"""A real `tape-arith train` killed at random moments ends where an unbroken one does."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arith.suite.folders import RunFolder
from tests.training.small import assert_same_bits, final_weights, untimed

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "trained_digits": 3,
    "tested_digits": 4,
    "num_problems": 5_000,  # met again and again
    "num_layers": 2,
    "hidden_size": 16,
    "num_heads": 2,
    "head_dim": 8,
    "mlp_size": 16,
    "batch_size": 16,
    "steps": 400,
    "groups": 2,
}
KILLS = 3


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "cli.py", "train", *arguments, "--no-score", "--threads", "1"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(*arguments: str) -> None:
    with started(*arguments) as process:
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output


def killed_on_the_way(folder: RunFolder, *arguments: str) -> None:
    """Start it, wait for a sign of life in its folder, then for a random moment, and kill it; at
    the end let it finish."""
    for _ in range(KILLS):
        before = stamp(folder)
        with started(*arguments) as process:
            deadline = time.monotonic() + 60
            while stamp(folder) == before and process.poll() is None:
                assert time.monotonic() < deadline, "no sign of life in 60 s"
                time.sleep(0.002)
            time.sleep(random.uniform(0, 1.2))
            process.kill()
            output = process.communicate()[0]
        assert process.returncode in (0, -9), output
    finished(*arguments)


def stamp(folder: RunFolder) -> int:
    try:
        return folder.metrics_file.stat().st_mtime_ns
    except OSError:
        return 0


def assert_same(ours: RunFolder, theirs: RunFolder) -> None:
    assert ours.finished() and theirs.finished()
    assert_same_bits(final_weights(ours), final_weights(theirs))
    assert untimed(ours.metrics()) == untimed(theirs.metrics())


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    name = "rand-rope"  # the one that draws at random
    new = ["--pe", name, "--preset", "mini"]
    for key, value in SETTINGS.items():
        new += ["--set", f"{key}={value}"]
    unbroken, broken = (
        RunFolder(tmp_path / out / "mini" / name / "seed-0") for out in ("unbroken", "broken")
    )
    finished(*new, "--out", str(tmp_path / "unbroken"))
    killed_on_the_way(broken, *new, "--out", str(tmp_path / "broken"))
    assert_same(broken, unbroken)
    assert [line["step"] for line in broken.metrics()] == list(range(20, 401, 20))

    more = ["--steps", "600"]
    finished(str(unbroken.path), *more)
    killed_on_the_way(broken, str(broken.path), *more)
    assert_same(broken, unbroken)
    assert broken.metrics()[-1]["step"] == 600
