"""The first second of a command: Ctrl-C and too little memory give a line, and no traceback."""

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


def test_ctrl_c_while_it_is_imported(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in the background with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1]
    assert process.returncode == 130 and error == ""


@pytest.mark.parametrize("megabytes", [250, 400])
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
