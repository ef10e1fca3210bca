"""A terminal or a pipe closes: no work is lost by it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.terminal import LossyStderr
from tests.helpers.child_processes import COMMAND_LINE
from tests.helpers.tiny_runs import done, settings

TRAIN = ("train", "--pe", "tape", "--no-score", *settings(steps=300, num_problems=4096))
FOLDER = RunFolder(Path("runs/mini/tape/seed-0"))


def start(
    *command: str, terminal: int | None = None, out: int | None = None
) -> "subprocess.Popen[bytes]":
    """A command, of a session of its own, in `terminal` or with what it prints in `out`."""

    def begin() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may run us
        if terminal is not None:
            os.login_tty(terminal)
        else:
            os.setsid()

    return subprocess.Popen(
        [*COMMAND_LINE, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        pass_fds=() if terminal is None else (terminal,),
        preexec_fn=begin,
    )


def wait_for(
    condition: Callable[[], bool], process: "subprocess.Popen[bytes]", screen: int
) -> None:
    """Wait, reading the screen."""
    os.set_blocking(screen, False)
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
        with suppress(BlockingIOError):
            os.read(screen, 2**16)


def trains() -> bool:
    return FOLDER.metrics_file.exists() and FOLDER.metrics_file.stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["terminal", "terminal that signals first", "pipe"])
def test_a_reader_that_goes_leaves_a_run_that_resumes(here: Path, reader: str) -> None:
    """As where a connection breaks, or the tee of `train 2>&1 | tee log` goes with it; a shell
    tells its jobs while the terminal still stands."""
    if reader == "pipe":
        screen, end = os.pipe()
        process = start(*TRAIN, out=end)
    else:
        screen, end = os.openpty()
        process = start(*TRAIN, terminal=end)
    os.close(end)
    wait_for(trains, process, screen)
    if reader == "terminal that signals first":
        os.killpg(process.pid, signal.SIGHUP)
    os.close(screen)
    if reader == "pipe":
        os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == 75
    assert FOLDER.latest.exists() and not FOLDER.finished()
    assert "from step" in done(*TRAIN).err


@pytest.mark.slow
def test_workers_that_generate_end_with_their_terminal(here: Path) -> None:
    """In good order: a hangup reaches all that the terminal runs, and the parent alone heeds it."""
    generate = ("generate", "--workers", "2", "--count", "3000000", "--out", "data")
    data, log = Path("data"), Path("log")
    with open(log, "wb") as file:
        process = start(*generate, out=file.fileno())
    while not list(data.glob("shard-*.json")):
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == 75
    assert "Traceback" not in log.read_text() and not list(data.glob(".*.partial"))
    assert not (data / "manifest.json").exists()
    assert done(*generate).out == "data\n"
    done("generate", "--verify", "data")


def test_messages_to_nobody() -> None:
    reader, writer = os.pipe()
    with LossyStderr(writer, "w") as stream:
        assert stream.write(b"abc") == 3 and os.read(reader, 9) == b"abc"
        os.close(reader)
        assert stream.write(memoryview(b"abcd")) == 4
