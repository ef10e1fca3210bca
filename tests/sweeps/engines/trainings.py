"""The trainings of a sweep of ours that run on this machine, seen from outside."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tape_arith.arith.runs.folder import RunFolder
from tests.helpers.child_processes import wait_until
from tests.helpers.sweeps import processes, start

STEPS = 600


@contextmanager
def watching(*sweep: str) -> Iterator["subprocess.Popen[str]"]:
    """A call of `tape-arith` that is not there any more afterwards, however the test ends."""
    with start(*sweep) as process:
        try:
            yield process
        finally:
            process.kill()


def trainings() -> dict[int, str]:
    """The encoding that each trains, by process."""
    names = {}
    for pid in processes():
        with suppress(OSError):  # gone meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "train" in words:
                names[pid] = words[words.index("--pe") + 1]
    return names


def step(name: str) -> int:
    """How far it is."""
    metrics = RunFolder(Path(f"runs/mine/mini/{name}/seed-0")).metrics_file
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


def log_of(name: str) -> str:
    """What all calls for it said."""
    return Path(f"runs/sweeps/mine/logs/train.mine.mini.{name}.seed-0.log").read_text()


def freeze(after: int, ours: Callable[[int], bool] = lambda pid: True) -> tuple[int, str]:
    """A training that stands still in mid-job: what happens to it happens there, on a machine of
    any speed."""
    caught: list[tuple[int, str]] = []

    def one() -> bool:
        for pid, name in trainings().items():
            if ours(pid) and after <= step(name):
                os.kill(pid, signal.SIGSTOP)
                caught.append((pid, name))
                return True
        return False

    wait_until(one)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{caught[0][0]}/status").read_text())
    assert step(caught[0][1]) < STEPS, "too fast: it is over"
    return caught[0]


def parent(pid: int) -> int:
    """Who began the process, if that one still lives."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def below(pid: int, above: int) -> bool:
    """Whether `above` began the process, by however many steps."""
    with suppress(OSError):
        while pid > 1 and pid != above:
            pid = parent(pid)
    return pid == above


def has_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits for one that stands still."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
