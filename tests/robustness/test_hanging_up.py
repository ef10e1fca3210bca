"""A terminal or a pipe closes: no work is lost by it."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tape_arith import cli
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import LossyStderr
from tests.helpers.child_processes import PREEMPTED, Process, start, wait, wait_until
from tests.helpers.tiny_runs import call, done, settings

TRAIN = ("train", "--pe", "tape", "--no-score", *settings(steps=300, num_problems=4096))
GENERATE = ("generate", "--workers", "2", "--count", "3000000", "--out", "data")
FOLDER = Run(Path("runs/mini/tape/seed-0"))


def start_into(output: int, *command: object) -> Process:
    """Start a command that prints to `output`, in a session of its own; nohup may run us."""

    def begin() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if os.isatty(output):
            os.login_tty(output)
        else:
            os.setsid()

    return start(command, output=output, begin=begin)


@pytest.mark.slow
@pytest.mark.parametrize("make", [os.openpty, os.pipe])
def test_a_reader_that_goes_leaves_a_run_that_resumes(
    here: Path, make: Callable[[], tuple[int, int]]
) -> None:
    """As where a connection breaks, or the tee of `train 2>&1 | tee log` goes with it."""
    screen, end = make()
    process = start_into(end, *TRAIN)
    os.close(end)
    os.set_blocking(screen, False)

    def trains() -> bool:
        with suppress(BlockingIOError):
            os.read(screen, 2**16)
        return FOLDER.metrics_file.exists() and FOLDER.metrics_file.stat().st_size > 0

    wait_until(trains)
    os.close(screen)
    if make is os.pipe:
        os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == PREEMPTED
    assert FOLDER.latest.exists() and not FOLDER.state().trained
    assert "from step" in done(*TRAIN).err


@pytest.mark.slow
def test_workers_that_generate_end_with_their_terminal(here: Path) -> None:
    """In good order: a hangup reaches all that the terminal runs, and the parent alone heeds it."""
    data, log = Path("data"), Path("log")
    with open(log, "wb") as file:
        process = start_into(file.fileno(), *GENERATE)
    wait_until(lambda: any(data.glob(".*.partial")))
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == PREEMPTED, log.read_text()
    assert "Traceback" not in log.read_text() and not list(data.glob(".*.partial"))
    assert not (data / "manifest.json").exists()
    assert done(*GENERATE).out == "data\n"
    done("generate", "--verify", "data")


def test_what_an_interruption_breaks_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it arrives while a lock is taken, which the library leaves as a RuntimeError."""

    def command(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            threading.Lock().release()

    monkeypatch.setattr(cli, "all_commands", lambda: command)
    assert call("list").code == PREEMPTED


RUN = "runs/mini/rope/seed-0"
STABILITY = ("study", "stability", RUN, "--figure", "x.png")
ERRORS = ("study", "errors", RUN, "--problems", 9, "--figure", "x.png")
EXPORT = ("export", RUN, "--out", "model")
CODES = {signal.SIGTERM: PREEMPTED, signal.SIGINT: 130}


@pytest.mark.parametrize(
    ("words", "busy_in", "number"),
    [
        (("ask", RUN, "1+2"), "models.decoder.Decoder.forward", signal.SIGINT),
        (STABILITY, "models.decoder.Decoder.forward", signal.SIGTERM),
        (ERRORS, "arith.studies.errors.figures", signal.SIGTERM),
        (EXPORT, "arith.export.export_run.save_file", signal.SIGTERM),
        (EXPORT, "arith.export.folder.write_document", signal.SIGINT),
    ],
)
def test_what_has_nothing_to_continue_stops_in_good_order(
    words: tuple[str, ...],
    busy_in: str,
    number: signal.Signals,
    comparison: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"tape_arith.{busy_in}", lambda *_, **__: signal.raise_signal(number))
    before = sorted(comparison.rglob("*"))
    result = call(*words)
    assert result.code == CODES[number] and result.out == ""
    assert result.err.endswith("interrupted: what is finished is kept, nothing is half-written\n")
    assert "Traceback" not in result.err and sorted(comparison.rglob("*")) == before


def test_a_repeated_signal_cuts_no_tidying_up_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm sends SIGTERM at both ends of a grace period, and to every process of a job."""
    tidied = []

    def command(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            tidied.append("all")

    monkeypatch.setattr(cli, "all_commands", lambda: command)
    result = call("list")
    assert result.code == PREEMPTED and tidied == ["all"]
    assert result.err.count("\n") == 1 and "nothing is half-written" in result.err
    tidied.clear()
    assert call("list").code == PREEMPTED and tidied == ["all"]


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [("list", signal.SIGINT, 130), ("list --no-such-option", signal.SIGTERM, 0)],
)
def test_a_signal_after_the_last_word_adds_none(
    words: str, number: signal.Signals, code: int
) -> None:
    """Libraries take a second to leave, and what they had to tidy up is theirs to end."""
    program = f"""
import atexit, signal
from tape_arith.cli import main
atexit.register(print, "left", flush=True)
atexit.register(signal.raise_signal, {int(number)})
main()
"""
    undisturbed = call(*words.split())
    exit_code, output = wait(start(words.split(), program=[sys.executable, "-c", program]))
    assert exit_code == (code or undisturbed.code)
    left = "" if code else "left\n"
    assert output == undisturbed.out + left + undisturbed.err


def test_messages_to_nobody() -> None:
    reader, writer = os.pipe()
    with LossyStderr(writer, "w") as stream:
        assert stream.write(b"abc") == 3 and os.read(reader, 9) == b"abc"
        os.close(reader)
        assert stream.write(memoryview(b"abcd")) == 4
