"""Every test on one thread of torch; runs that are made once and copied."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tape_arith.arith.runs.run import Run
from tape_arith.arith.training import session, trainer
from tape_arith.arith.training.checkpoints import Checkpoints
from tape_arith.arith.training.trainer import Line, Trainer
from tape_arith.models.hardware import Hardware
from tests.helpers import small_training as small

HELD_OUT_PROBLEMS = 32


@pytest.fixture(autouse=True)
def on_one_thread(one_thread: None) -> None:
    """Bits depend on the number of threads."""


@contextmanager
def saved_often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "log_every", 5)
        patch.setattr(Trainer, "evaluate_every", 10)
        patch.setattr(Checkpoints, "save_every", 10)
        patch.setattr(session, "detect", lambda *choice: Hardware("cpu", torch.float32))
        patch.setattr(trainer, "HELD_OUT_PROBLEMS", HELD_OUT_PROBLEMS)
        yield


@pytest.fixture
def often() -> Iterator[None]:
    """Runs log, evaluate and save every few steps, on one thread in float32."""
    with saved_often():
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run, finished and stopped after 13 steps. Not to be changed."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("runs")
    with saved_often():
        small.run(root / "finished")
        small.run(root / "stopped", stop=13)
    return root


@pytest.fixture
def finished(made_once: Path, tmp_path: Path) -> Run:
    """A copy of the finished run below `tmp_path`."""
    shutil.copytree(made_once / "finished", tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "mini/rope/seed-0")


@pytest.fixture
def stopped(made_once: Path, tmp_path: Path) -> Run:
    """A copy of the run that was stopped after 13 steps."""
    shutil.copytree(made_once / "stopped", tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "mini/rope/seed-0")


@pytest.fixture(scope="session")
def uninterrupted() -> small.Outcome:
    """Weights and lines of the small recipe, trained in one go. Not to be changed."""
    torch.set_num_threads(1)
    lines: list[Line] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "HELD_OUT_PROBLEMS", HELD_OUT_PROBLEMS)
        done = small.train(small.trainer(small.SMALL), lines.append)
    return small.weights(done), small.untimed(lines)
