"""The real command line in child processes: start one, kill one, wait for its end."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

COMMAND_LINE = (sys.executable, "-P", "-m", "tape_arith")
PREEMPTED = BUSY = 75
PATIENCE = 300.0
"""Seconds after which a command counts as hanging."""

Process = subprocess.Popen[str]


def start(
    argv: Sequence[object],
    folder: Path = Path(),
    program: Sequence[str] = COMMAND_LINE,
    output: int = subprocess.PIPE,
    begin: Callable[[], object] = os.setsid,
    **variables: str,
) -> Process:
    """Start the command line in `folder` with one thread; it first calls `begin`."""
    return subprocess.Popen(
        [*program, *map(str, argv)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **variables},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        preexec_fn=begin,
    )


def wait(process: Process) -> tuple[int, str]:
    """Return exit code and output; fails where the process hangs."""
    try:
        output = "".join(process.communicate(timeout=PATIENCE))
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError("hung: " + "".join(process.communicate())) from None
    return process.returncode, output


def finish(argv: Sequence[object], folder: Path) -> None:
    """Run a command to its end, again while another process still holds the folder."""
    deadline = time.monotonic() + PATIENCE
    while True:
        code, output = wait(start(argv, folder))
        if code == 0:
            return
        assert code == BUSY and time.monotonic() < deadline, f"exit code {code}: {output}"
        time.sleep(1)


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until `condition` holds; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def processes() -> list[int]:
    """Return the processes of the command line that run in this folder."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"tape_arith" in words and Path.cwd() == (entry / "cwd").readlink():
                pids.append(int(entry.name))
        except OSError:  # gone meanwhile, or of another user
            continue
    return pids
