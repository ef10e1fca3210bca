"""A command that is killed again and again ends with the results of one that nobody killed."""

import os
import random
import shutil
import signal
import sys
import time
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.child_processes import BUSY, PREEMPTED, Process, finish, start, wait
from tests.helpers.stored_results import assert_whole, results
from tests.helpers.sweeps import sweep_file
from tests.helpers.tiny_runs import settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sees writes through /proc"),
]
RUN = "runs/mini/rand-rope/seed-0"  # an encoding that draws random numbers
SIZES = {"num_problems": 2000, "problems_per_cell": 4000, "steps": 250}
GENERATE = [
    *("generate", *settings(trained_digits=8, tested_digits=8)),
    *("--count=2500000", "--out=data"),
]
TRAIN = ["train", "--pe=rand-rope", "--no-score", "--threads=1", *settings(**SIZES)]
# Killed just before write number argv[1] by signal argv[2]; argv[3] is the file for their number.
KILLED_AT_A_WRITE = """
import os, signal, sys
from pathlib import Path
from tape_arith import cli
from tests.helpers.watched_writes import watched

number, signal_number, count_file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
del sys.argv[1:4]
parent, count = os.getpid(), 0

def watcher(operation, path):
    global count
    count += 1
    if count == number:
        signal.raise_signal(signal_number)

try:
    with watched(Path.cwd(), watcher):
        cli.main()
finally:
    if os.getpid() == parent:
        count_file.write_text(str(count))
"""


@dataclass(frozen=True)
class Command:
    """A command, how often it is killed, and the command that runs before it."""

    argv: list[str]
    kills: int
    after: list[str] = field(default_factory=list)
    workers: bool = False
    """Whether it starts processes: then it is not killed at a write of its own alone."""

    def prepare(self, folder: Path) -> None:
        """Put into `folder` what the command begins with, which is made once a test."""
        source = folder.parent / "source"
        if not source.exists():
            source.mkdir()
            with chdir(source):
                sweep_file("rope,rope+yarn", num_problems=2000, steps=100)
            if self.after:
                finish(self.after, source)
        shutil.copytree(source, folder)


CODES = ((signal.SIGKILL, -9), (signal.SIGTERM, PREEMPTED), (signal.SIGINT, 130))
COMMANDS = {
    "generate": Command([*GENERATE, "--workers=2"], 3, workers=True),
    "generate alone": Command([*GENERATE, "--workers=1"], 3),
    "train": Command(TRAIN, 6),
    "extend": Command(["train", RUN, "--steps=350", "--no-score", "--threads=1"], 4, TRAIN),
    "score": Command(["score", RUN, "--threads=1"], 4, TRAIN),
    "export": Command(
        ["export", RUN, "--out=exported", "--fresh"], 4, [w for w in TRAIN if w != "--no-score"]
    ),
    "sweep": Command(["sweep", "mine.toml", "--slots=2", "--threads=1"], 2, workers=True),
}


def start_killed_at(number: int, signal_number: int, argv: list[str], folder: Path) -> Process:
    """Start a command that sends itself a signal just before its write of that number."""
    script = [sys.executable, "-c", KILLED_AT_A_WRITE, str(number), str(int(signal_number))]
    root = str(Path(__file__).parents[2])
    return start(argv, folder, [*script, str(count_file(folder))], PYTHONPATH=root)


def count_file(folder: Path) -> Path:
    return folder.with_suffix(".writes")


def listens(process: Process, signal_number: int) -> bool:
    """Whether it handles that signal: before Python has read the command line it does not."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line for line in status.splitlines() if line.startswith("SigCgt")), "SigCgt 0")
    return bool(int(caught.split()[1], 16) >> (signal_number - 1) & 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_run_again(tmp_path: Path, name: str) -> None:
    command, draw = COMMANDS[name], random.Random(name)
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "killed"
    for path in (undisturbed, folder):
        command.prepare(path)
    began = time.monotonic()
    code, output = wait(start_killed_at(0, 0, command.argv, undisturbed))
    seconds = time.monotonic() - began
    assert code == 0, output
    expected, writes = results(undisturbed), int(count_file(undisturbed).read_text())

    for kill in range(command.kills):
        signal_number, code = CODES[kill % 3]
        codes = {0, BUSY, code}
        if kill % 4 < 2 and not command.workers:
            number = draw.randint(1, writes)
            moment = f"before write {number} of {writes}"
            code, output = wait(start_killed_at(number, signal_number, command.argv, folder))
        else:
            delay = draw.uniform(0.3, 1.0) * seconds
            moment = f"after {delay:.2f} of {seconds:.2f} s"
            process = start(command.argv, folder)
            time.sleep(delay)
            if not listens(process, signal_number):
                codes.add(-signal_number)
            os.kill(process.pid, signal_number)
            code, output = wait(process)
        assert code in codes and "Traceback" not in output, (signal_number, moment, code, output)
        assert_whole(folder)
        if code == 0:  # it was faster: begin anew
            assert results(folder) == expected, moment
            shutil.rmtree(folder)
            command.prepare(folder)
    finish(command.argv, folder)
    assert results(folder) == expected
