"""Two processes at one folder: the second says who holds it and changes nothing; the first ends as
if it had been alone."""

import signal
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith import lock
from tests.helpers.child_processes import BUSY, Process, finish, start, wait
from tests.helpers.stored_results import results
from tests.helpers.sweeps import sweep_file
from tests.helpers.tiny_runs import contents, settings

pytestmark = pytest.mark.slow

RUN = "runs/mini/rand-rope/seed-0"
SIZES: dict[str, Any] = {"steps": 20, "num_problems": 2000, "problems_per_cell": 20}
TRAIN = ["train", "--pe=rand-rope", "--no-score", "--threads=1", *settings(**SIZES)]
SCORE = ["score", RUN, "--threads=1"]
GENERATE = ["generate", *settings(trained_digits=8, tested_digits=8)]
GENERATE += ["--count=1200000", "--out=data", "--workers=2"]


@contextmanager
def stopped(argv: list[str], folder: Path, held: str) -> Iterator[Process]:
    """Start a command that stands still as soon as it holds the folder `held`."""
    process, lock_file = start(argv, folder), folder / held / lock.NAME
    try:
        deadline = time.monotonic() + 120
        while not (lock_file.exists() and (folder / held / lock.ACTIVITY).exists()):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)
        assert lock_file.exists(), "it was faster"
        yield process
    finally:
        process.kill()
        process.communicate()


def assert_busy(argv: list[str], folder: Path, holder: Process) -> None:
    """The command exits with 75, names the holder and leaves every byte as it is."""
    before = contents(folder)
    code, output = wait(start(argv, folder))
    assert code == BUSY, output
    (line,) = (line for line in output.splitlines() if line.startswith("tape-arith: "))
    assert f"process {holder.pid} on " in line and "since" in line, line
    assert contents(folder) == before


def assert_goes_on(holder: Process) -> None:
    holder.send_signal(signal.SIGCONT)
    code, output = wait(holder)
    assert code == 0, output


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder for the command that is alone, one for two at once."""
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    alone.mkdir()
    shared.mkdir()
    return alone, shared


SWEEP = ["sweep", "mine.toml", "--threads=1"]


def write_sweep(folder: Path) -> None:
    with chdir(folder):
        sweep_file("rand-rope", **SIZES)


def test_two_trainings_and_two_scorings(folders: tuple[Path, Path]) -> None:
    alone, shared = folders
    finish(TRAIN, alone)
    with stopped(TRAIN, shared, RUN) as first:
        assert_busy(TRAIN, shared, first)
        assert_goes_on(first)
    finish(SCORE, alone)
    with stopped(SCORE, shared, RUN) as first:
        assert_busy(SCORE, shared, first)
        assert_busy(["train", RUN, "--steps=40", "--threads=1"], shared, first)
        assert_goes_on(first)
    assert results(shared) == results(alone)


@pytest.mark.parametrize(
    ("argv", "second", "held"),
    [(GENERATE, [*GENERATE, "--fresh"], "data"), (SWEEP, SWEEP, "runs/sweeps/mine")],
    ids=["datasets", "sweeps"],
)
def test_two_of_a_kind(
    folders: tuple[Path, Path], argv: list[str], second: list[str], held: str
) -> None:
    alone, shared = folders
    for folder in folders:
        write_sweep(folder)
    finish(argv, alone)
    with stopped(argv, shared, held) as first:
        assert_busy(second, shared, first)
        assert_goes_on(first)
    assert results(shared) == results(alone)


def test_a_sweep_waits_for_a_training(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    run = f"runs/mine/{RUN.removeprefix('runs/')}"
    with stopped([*TRAIN, "--out=runs/mine"], tmp_path, run) as training:
        sweep = start(SWEEP, tmp_path)
        assert sweep.stderr is not None
        assert run in next(line for line in sweep.stderr if f"process {training.pid} " in line)
        assert_goes_on(training)
        code, output = wait(sweep)
    assert code == 0, output
    assert (tmp_path / run / "grid.json").exists()
