"""The trainings of a sweep of ours that run on this machine, seen from outside."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tape_arith.arith.runs.run import Run
from tests.helpers.child_processes import Process, processes, start, wait_until

STEPS = 600


@contextmanager
def watching(*sweep: str) -> Iterator[Process]:
    """Call `tape-arith`, and kill it afterwards, however the test ends."""
    with start(sweep) as process:
        try:
            yield process
        finally:
            process.kill()


def trainings() -> dict[int, str]:
    """Return the encoding that each training of this folder trains, by process."""
    names = {}
    for pid in processes():
        with suppress(OSError):  # gone meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "train" in words:
                names[pid] = words[words.index("--pe") + 1]
    return names


def step(name: str) -> int:
    """Return the last step in the metrics of a run."""
    metrics = Run(Path(f"runs/mine/mini/{name}/seed-0")).metrics_file
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


def log_of(name: str) -> str:
    """Read the log of all calls for a training."""
    return Path(f"runs/sweeps/mine/logs/train.mine.mini.{name}.seed-0.log").read_text()


def freeze(after: int, is_ours: Callable[[int], bool] = lambda pid: True) -> tuple[int, str]:
    """Stop a training of at least `after` steps with SIGSTOP, on a machine of any speed."""
    caught: list[tuple[int, str]] = []

    def one() -> bool:
        for pid, name in trainings().items():
            if is_ours(pid) and after <= step(name):
                os.kill(pid, signal.SIGSTOP)
                caught.append((pid, name))
                return True
        return False

    wait_until(one)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{caught[0][0]}/status").read_text())
    assert step(caught[0][1]) < STEPS, "too fast: it is over"
    return caught[0]


def parent(pid: int) -> int:
    """Return the process that started `pid`, if it still lives."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def below(pid: int, above: int) -> bool:
    """Return whether `above` started `pid`, over any number of others."""
    with suppress(OSError):
        while pid > 1 and pid != above:
            pid = parent(pid)
    return pid == above


def has_pending(pid: int, number: signal.Signals) -> bool:
    """Return whether a signal is pending for a process that stands still."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
