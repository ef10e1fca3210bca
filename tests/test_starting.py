"""The first second of a command, and its last: signals and too little memory give no traceback."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tape_arith import cli
from tests.helpers.tiny_runs import refused

START = [sys.executable, "-P", "-m", "tape_arith"]


# Starts as `tape-arith` does, on a disk from which the command line comes slowly.
SLOW = """
import sys, time
from tape_arith.__main__ import main

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tape_arith.cli":
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
main()
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    def as_usual() -> None:  # a shell starts what runs in the background with Ctrl-C ignored
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_usual,
    )


STOPS = {signal.SIGINT: 130, signal.SIGTERM: 75, signal.SIGHUP: 75, signal.SIGUSR2: 75}


@pytest.mark.parametrize(("number", "code"), STOPS.items())
def test_a_signal_while_it_is_imported(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with start(SLOW, tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline() == "importing\n"
        process.send_signal(number)
        error = process.communicate()[1]
    assert process.returncode == code and error == ""


# Python resets handlers of signals when it exits, then deletes what modules hold.
REPEATED = """
import os, signal, sys, types
from tape_arith.__main__ import main

class Late:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGTERM):
        kill(me, number)

late = Late()
stopped = types.SimpleNamespace(main=lambda: sys.exit(75))
sys.modules["tape_arith.cli"] = sys.modules["tape_arith"].cli = stopped
main()
"""


def test_a_signal_while_python_exits_changes_no_exit_code(tmp_path: Path) -> None:
    with start(REPEATED, tmp_path) as process:
        assert process.communicate() == ("", "")
    assert process.returncode == 75


@pytest.mark.parametrize("megabytes", [pytest.param(250, marks=pytest.mark.slow), 400])
def test_too_little_memory_to_start(tmp_path: Path, megabytes: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6,) * 2)

    made = subprocess.run(
        [*START, "train", "--pe", "rope", "--preset", "mini"],
        cwd=tmp_path,
        preexec_fn=limit,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    message = "tape-arith: out of memory: free some, or run this where there is more\n"
    assert made.returncode == 1 and made.stderr == message


def test_memory_that_runs_out_anywhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(arguments: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(cli, "_run", exhausted)
    assert refused("list", code=1).startswith("out of memory")
