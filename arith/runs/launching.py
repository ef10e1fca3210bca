"""`train --processes N`: the same command as so many processes of this machine. No torch here.

torchrun does the same, and over several machines. This is for one, and keeps what commands promise:
one line for an error, the first process's exit code, nobody left behind.
"""

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from tape_arith.arith.errors import EXIT_FAILED
from tape_arith.arith.runs.child_process import begin
from tape_arith.arith.stopping import Stopper

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_OF_GRACE = 10.0
"""For the others, once the first process has ended, and for it, once another one has failed."""


def launch(argv: Sequence[str], count: int, stopper: Stopper) -> int:
    """Run `tape-arith argv` as `count` processes; the exit code of the first one, 1 where another
    one failed before it. A wish to stop is passed on to the first one, which tells the others."""
    cores = max(1, (os.cpu_count() or 1) // count)
    shared = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores)),
    }
    children: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            children.append(begin(argv, None, {**shared, **place}, apart=True))
        return _waited(children, stopper)
    finally:
        _end(children)


def without(option: str, argv: Sequence[str]) -> list[str]:
    """`argv` without an option that takes a value.

    >>> without("--processes", ["train", "--processes", "2", "--pe", "tape", "--processes=3"])
    ['train', '--pe', 'tape']
    """
    before = ["", *argv]
    return [
        word
        for previous, word in zip(before, argv, strict=False)
        if option != previous and word != option and not word.startswith(f"{option}=")
    ]


def _waited(children: Sequence["subprocess.Popen[bytes]"], stopper: Stopper) -> int:
    first, *others = children
    passed_on = False
    while first.poll() is None:
        if stopper.signal is not None and not passed_on:
            first.send_signal(stopper.signal)
            passed_on = True
        if any(child.poll() not in (None, 0) for child in others):
            # It says itself what it was. The first one has more to say, or waits for it in vain.
            with suppress(subprocess.TimeoutExpired):
                first.wait(SECONDS_OF_GRACE)
            return max(first.returncode or EXIT_FAILED, EXIT_FAILED)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return first.returncode if first.returncode >= 0 else EXIT_FAILED


def _end(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    deadline = time.monotonic() + SECONDS_OF_GRACE
    for child in children:
        if child.poll() is None and children[0].returncode == 0:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
        if child.poll() is None:
            child.kill()
        child.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
