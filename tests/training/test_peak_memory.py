"""The most memory that generate, train and score hold at mini, by the operating system's account.

Measured when the limits were set, on two threads of an AMD EPYC (torch 2.13 for CPUs), in MiB; with
torch alone a process holds some 300 of them:

    generate  1,000 problems 54, 200,000 79, 2,000,000 102; paper-40, 2,000,000 problems 75
    train     rope 857 after 12 steps and 953 after 60, tape 1,038 after 12
    score     the whole grid (100 problems a cell) rope 1,274, tape 1,442; 10 a cell, rope 720

The limits are about one and a half times the most of each: glibc keeps what is freed, and how much
that comes to depends on which thread took which group. What they are to catch is of another size:
a shard of problems that is held as Python objects, a batch that goes through ungrouped, a grid
scored in one piece.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A process that is small itself: Linux counts to a child what its parent held when it began.
WAITING = """
import os, sys
child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""
GENERATE, TRAIN, SCORE = 160, 1_536, 2_048


def peak(folder: Path, *arguments: object) -> float:
    """MiB that a command held at once, it or a process that it started."""
    told = subprocess.run(
        [sys.executable, "-c", WAITING, str(ROOT / "cli.py"), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    code, most = map(int, told.stdout.splitlines()[-1].split())
    assert code == 0, told.stderr
    return most / (1024 if sys.platform == "linux" else 1024**2)


@pytest.mark.slow
def test_generate_holds_no_more_for_more_problems(tmp_path: Path) -> None:
    options = ("--preset", "mini", "--out")
    few = peak(tmp_path, "generate", "--count", 1_000, *options, "few")
    many = peak(tmp_path, "generate", "--count", 1_000_000, *options, "many")
    assert 10 < few < many < GENERATE, (few, many)


@pytest.mark.slow
def test_train_and_score(tmp_path: Path) -> None:
    settings = ("--set", "steps=6", "--set", "problems_per_cell=20")
    train = peak(tmp_path, "train", "--pe", "rope", "--preset", "mini", *settings, "--no-score")
    assert 200 < train < TRAIN, train
    score = peak(tmp_path, "score", "runs/mini/rope/seed-0")
    assert 200 < score < SCORE, score
