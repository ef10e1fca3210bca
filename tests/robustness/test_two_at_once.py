"""Two processes at one folder: the second says who holds it and changes nothing; the first ends as
if it had been alone."""

import signal
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith import lock
from tests.helpers.child_processes import BUSY, Process, finish, start, wait, wait_until
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
SWEEP = ["sweep", "mine.toml", "--threads=1"]


@contextmanager
def stopped(argv: list[str], folder: Path, held: str) -> Iterator[Process]:
    """Start a command that stands still as soon as it holds the folder `held`."""
    process, lock_file = start(argv, folder), folder / held / lock.NAME
    try:
        wait_until(lambda: lock_file.exists() and (folder / held / lock.ACTIVITY).exists())
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
    assert f"process {holder.pid}" in line and "since" in line, line
    assert contents(folder) == before


def assert_finishes(holder: Process) -> None:
    holder.send_signal(signal.SIGCONT)
    code, output = wait(holder)
    assert code == 0, output


def write_sweep(folder: Path) -> None:
    with chdir(folder):
        sweep_file("rand-rope", **SIZES)


@pytest.mark.parametrize(
    ("before", "argv", "second", "held"),
    [
        ([], TRAIN, TRAIN, RUN),
        (TRAIN, SCORE, SCORE, RUN),
        (TRAIN, SCORE, ["train", RUN, "--steps=40", "--threads=1"], RUN),
        ([], GENERATE, [*GENERATE, "--fresh"], "data"),
        ([], SWEEP, SWEEP, "runs/sweeps/mine"),
    ],
    ids=["trainings", "scorings", "a training that is scored", "datasets", "sweeps"],
)
def test_two_at_once(
    tmp_path: Path, before: list[str], argv: list[str], second: list[str], held: str
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    for folder in (alone, shared):
        folder.mkdir()
        write_sweep(folder)
        if before:
            finish(before, folder)
    finish(argv, alone)
    with stopped(argv, shared, held) as first:
        assert_busy(second, shared, first)
        assert_finishes(first)
    assert results(shared) == results(alone)


def test_a_sweep_waits_for_a_training(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    run = f"runs/mine/{RUN.removeprefix('runs/')}"
    with stopped([*TRAIN, "--out=runs/mine"], tmp_path, run) as training:
        sweep = start(SWEEP, tmp_path)
        assert sweep.stderr is not None
        assert run in next(line for line in sweep.stderr if f"process {training.pid} " in line)
        assert_finishes(training)
        code, output = wait(sweep)
    assert code == 0, output
    assert (tmp_path / run / "grid.json").exists()
