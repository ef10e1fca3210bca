"""Two processes at one folder: the second says who holds it and since when, and changes nothing;
the first comes to its end as if it had been alone."""

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arith.suite import lock
from tests.robustness.processes import BUSY, Process, ended, finish, start
from tests.robustness.readers import leftovers, read_all
from tests.robustness.victims import GENERATE, RUN, grids, hashes, run, settings
from tests.suite.tiny import contents

pytestmark = pytest.mark.slow

SHORT = ["--threads=1", *settings(steps=20, problems_per_cell=20)]
TRAIN = ["train", "--pe=rand-rope", "--no-score", *SHORT]
SWEEP = """# Beside a training.
preset = "mini"
encodings = ["rand-rope"]
seeds = [0]
[set]
{settings}
"""


@contextmanager
def stopped(argv: list[str], folder: Path, held: str) -> Iterator[Process]:
    """The command, which stands still as soon as it holds the folder `held`."""
    process, file = start(argv, folder), folder / held / lock.NAME
    try:
        deadline = time.monotonic() + 120
        while not (file.exists() and file.read_text().endswith("}")):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)
        assert file.exists(), "it was faster"
        yield process
    finally:
        process.kill()
        process.communicate()


def assert_busy(argv: list[str], folder: Path, holder: Process) -> None:
    """It says who holds the folder, exits with 75 at once, and leaves every byte as it is."""
    before = contents(folder)
    code, output = ended(start(argv, folder))
    assert code == BUSY, output
    (line,) = (line for line in output.splitlines() if line.startswith("tape-arith: "))
    who = rf"is being written by process {holder.pid} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(who, line), line
    assert contents(folder) == before


def assert_goes_on(holder: Process, folder: Path) -> None:
    holder.send_signal(signal.SIGCONT)
    code, output = ended(holder)
    assert code == 0, output
    read_all(folder)
    assert leftovers(folder) == []


def test_two_trainings_and_two_scorings(tmp_path: Path) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    alone.mkdir()
    both.mkdir()
    score = ["score", RUN, "--threads=1"]
    finish(TRAIN, alone)
    with stopped(TRAIN, both, RUN) as first:
        assert_busy(TRAIN, both, first)
        assert_goes_on(first, both)
    assert run(both) == run(alone)
    finish(score, alone)
    with stopped(score, both, RUN) as first:
        assert_busy(score, both, first)
        assert_busy(["train", RUN, "--steps=40", "--threads=1"], both, first)
        assert_goes_on(first, both)
    assert grids(both) == grids(alone) and len(grids(both)) == 1


def test_a_sweep_waits_for_a_training(tmp_path: Path) -> None:
    pairs = [option.removeprefix("--set=").split("=") for option in SHORT if "--set=" in option]
    text = SWEEP.format(settings="\n".join(f"{key} = {value}" for key, value in pairs))
    (tmp_path / "beside.toml").write_text(text)
    place = f"runs/beside/{RUN.removeprefix('runs/')}"
    with stopped([*TRAIN, "--out=runs/beside"], tmp_path, place) as training:
        sweep = start(["sweep", "beside.toml", "--threads=1"], tmp_path)
        assert sweep.stdout is not None
        told = next(line for line in sweep.stdout if line.startswith("again in "))
        assert f"{place} is being written by process {training.pid} " in told
        training.send_signal(signal.SIGCONT)
        assert ended(training)[0] == 0
        code, output = ended(sweep)
    assert code == 0, output
    read_all(tmp_path)
    assert leftovers(tmp_path) == [] and len(grids(tmp_path)) == 1


def test_two_that_generate(tmp_path: Path) -> None:
    few = [option for option in GENERATE if not option.startswith("--count")]
    alone, both = tmp_path / "alone", tmp_path / "both"
    alone.mkdir()
    both.mkdir()
    finish([*few, "--count=1200000"], alone)
    with stopped([*few, "--count=1200000"], both, "data") as first:
        assert_busy([*few, "--count=1200000", "--fresh"], both, first)
        assert_goes_on(first, both)
    assert hashes(both) == hashes(alone)


def test_one_after_the_other_however_many_ask(tmp_path: Path) -> None:
    """Processes that take the lock as often as they can: none while another holds it."""
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from arith.suite.lock import Busy, hold\n"
        "folder, said = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)\n"
        "count = 0\n"
        "while count < 25:\n"
        "    try:\n"
        "        with hold(folder):\n"
        "            os.write(said, b'in %d\\n' % os.getpid())\n"
        "            time.sleep(0.001)\n"
        "            os.write(said, b'out %d\\n' % os.getpid())\n"
        "            count += 1\n"
        "    except Busy:\n"
        "        time.sleep(0.0005)\n"
    )
    file = tmp_path / "said.txt"
    file.touch()
    (tmp_path / "asks.py").write_text(script)
    root = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    python = [sys.executable, "asks.py"]
    asked = [str(tmp_path / "held"), str(file)]
    asking = [start(asked, tmp_path, python, **root) for _ in range(4)]
    assert [ended(process) for process in asking] == [(0, "")] * 4
    lines = [line.split() for line in file.read_text().splitlines()]
    assert len(lines) == 2 * 4 * 25
    for (enter, one), (leave, other) in zip(lines[::2], lines[1::2], strict=True):
        assert (enter, leave) == ("in", "out") and one == other
