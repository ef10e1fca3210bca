"""A terminal goes, or who reads what is printed: no work is lost by it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.terminal import LossyStderr
from tests.helpers.tiny_runs import done, settings

ROOT = Path(__file__).parents[2]
TRAIN = ("train", "--pe", "tape", "--no-score", *settings(steps=300, num_problems=4096))
FOLDER = RunFolder(Path("runs/mini/tape/seed-0"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
        [sys.executable, "-c", "from tape_arith import cli; cli.main()", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        pass_fds=() if terminal is None else (terminal,),
        preexec_fn=begin,
    )


def wait_for(
    condition: Callable[[], bool], process: "subprocess.Popen[bytes]", screen: int
) -> bytes:
    """What came to the screen until then."""
    shown, deadline = b"", time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, shown
        time.sleep(0.02)
        with suppress(BlockingIOError):
            shown += os.read(screen, 2**16)
    return shown


def trains() -> bool:
    return FOLDER.metrics_file.exists() and FOLDER.metrics_file.stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("told_first", [False, True])
def test_a_terminal_that_goes_leaves_a_run_that_resumes(told_first: bool) -> None:
    """As where a connection breaks; a shell tells its jobs while the terminal still stands."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    process = start(*TRAIN, terminal=theirs)
    os.close(theirs)
    assert b"tape" in wait_for(trains, process, ours)
    if told_first:
        os.killpg(process.pid, signal.SIGHUP)
    os.close(ours)
    assert process.wait(timeout=60) == 75
    assert FOLDER.latest.exists() and not FOLDER.finished()
    assert "from step" in done(*TRAIN).err


@pytest.mark.slow
def test_a_reader_that_goes_ends_nothing() -> None:
    """As in `train 2>&1 | tee log`, whose tee goes with the terminal."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    process = start(*TRAIN, out=theirs)
    os.close(theirs)
    wait_for(trains, process, ours)
    os.close(ours)
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == 75
    assert FOLDER.latest.exists() and not FOLDER.finished()


@pytest.mark.slow
def test_workers_that_generate_end_with_their_terminal() -> None:
    """In good order: a hangup reaches all that the terminal runs, and the parent alone heeds it."""
    generate = ("generate", "--workers", "2", "--count", "3000000", "--out", "data")
    data, said = Path("data"), Path("said")
    with open(said, "wb") as file:
        process = start(*generate, out=file.fileno())
    ours, theirs = os.pipe()
    os.close(theirs)
    wait_for(lambda: len(list(data.glob("shard-*.json"))) > 0, process, ours)
    os.close(ours)
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == 75
    assert "Traceback" not in said.read_text() and not list(data.glob(".*.partial"))
    assert not (data / "manifest.json").exists()
    assert done(*generate).out == "data\n"
    done("generate", "--verify", "data")


def test_talk_to_nobody() -> None:
    ours, theirs = os.pipe()
    with LossyStderr(theirs, "w") as talk:
        assert talk.write(b"abc") == 3 and os.read(ours, 9) == b"abc"
        os.close(ours)
        assert talk.write(memoryview(b"abcd")) == 4
