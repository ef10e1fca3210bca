"""Two processes at one folder: the second says who holds it and changes nothing; the first ends as
if it had been alone."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tape_arith.arith.runs import lock
from tests.helpers.child_processes import BUSY, Process, finish, start, wait
from tests.helpers.stored_results import results
from tests.helpers.tiny_runs import SETTINGS, contents, settings

pytestmark = pytest.mark.slow

RUN = "runs/mini/rand-rope/seed-0"
SIZES = {"steps": 20, "num_problems": 2000, "problems_per_cell": 20}
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


def test_two_datasets(folders: tuple[Path, Path]) -> None:
    alone, shared = folders
    finish(GENERATE, alone)
    with stopped(GENERATE, shared, "data") as first:
        assert_busy([*GENERATE, "--fresh"], shared, first)
        assert_goes_on(first)
    assert results(shared) == results(alone)


def write_sweep(folder: Path) -> None:
    lines = ['preset = "mini"', 'encodings = ["rand-rope"]', "seeds = [0]", "[set]"]
    lines += [f"{key} = {value}" for key, value in (SETTINGS | SIZES).items()]
    (folder / "beside.toml").write_text("\n".join(lines))


def test_two_identical_sweeps(folders: tuple[Path, Path]) -> None:
    alone, shared = folders
    sweep = ["sweep", "beside.toml", "--threads=1"]
    for folder in folders:
        write_sweep(folder)
    finish(sweep, alone)
    with stopped(sweep, shared, "runs/sweeps/beside") as first:
        assert_busy(sweep, shared, first)
        assert_goes_on(first)
    assert results(shared) == results(alone)


def test_a_sweep_waits_for_a_training(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    run = f"runs/beside/{RUN.removeprefix('runs/')}"
    with stopped([*TRAIN, "--out=runs/beside"], tmp_path, run) as training:
        sweep = start(["sweep", "beside.toml", "--threads=1"], tmp_path)
        assert sweep.stderr is not None
        waits = next(line for line in sweep.stderr if f"process {training.pid} " in line)
        assert run in waits
        assert_goes_on(training)
        code, output = wait(sweep)
    assert code == 0, output
    assert (tmp_path / run / "grid.json").exists()
