"""The real command line in processes of its own: started, waited for, perhaps aimed at."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LINE = [sys.executable, str(ROOT / "cli.py")]
PREEMPTED = BUSY = 75
PATIENCE = 300.0
"""Seconds that a command may take before it counts as hanging."""
Process = subprocess.Popen[str]


class Broken(AssertionError):
    """A promise that was not kept; its folder is still there."""


def start(
    argv: Sequence[str], folder: Path, command: Sequence[str] = COMMAND_LINE, **more: str
) -> Process:
    """The command line in `folder` with one thread, and `more` in its environment."""
    return subprocess.Popen(
        [*command, *argv],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def start_aimed(argv: Sequence[str], folder: Path, write: int, number: int) -> Process:
    """The same, which sends itself a signal before its write of that number (0: never)."""
    aimed = [sys.executable, str(ROOT / "tests/robustness/aimed.py")]
    return start(argv, folder, [*aimed, str(write), str(number), str(_count(folder))])


def writes(folder: Path) -> int:
    """How many writes the last one that was started so in `folder` came to."""
    return int(_count(folder).read_text())


def _count(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.writes"


def ended(process: Process) -> tuple[int, str]:
    """Its exit code, and what it said. Errors: Broken where it hangs."""
    try:
        output = process.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise Broken(f"it hung for {PATIENCE:.0f} s") from error
    return process.returncode, output


def finish(argv: Sequence[str], folder: Path) -> None:
    """Run it to its end, as often as it says that somebody else is still at work."""
    deadline = time.monotonic() + PATIENCE
    while True:
        code, output = ended(start(argv, folder))
        if code == 0:
            return
        if code != BUSY or time.monotonic() > deadline:
            raise Broken(f"{folder}: exit code {code}: {output}")
        time.sleep(1)


def listens(process: Process, number: int) -> bool:
    """Whether it takes that signal itself: before Python has read the command line it does not."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line for line in status.splitlines() if line.startswith("SigCgt")), "SigCgt 0")
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
