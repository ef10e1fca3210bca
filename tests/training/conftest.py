"""Every test on one thread of torch, and the run that nobody interrupts."""

import pytest
import torch

from arith.suite import runs, trainers
from arith.training import train
from models.hardware import Hardware
from tests.training import small

HELD_OUT_PROBLEMS = 32


@pytest.fixture(autouse=True)
def on_one_thread(one_thread: None) -> None:
    """Bits depend on the number of threads."""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that log, evaluate and save every few steps, on one thread in float32."""
    monkeypatch.setattr(runs, "LOG_EVERY", 5)
    monkeypatch.setattr(runs, "EVALUATE_EVERY", 10)
    monkeypatch.setattr(runs, "SAVE_EVERY", 10)
    monkeypatch.setattr(trainers, "detect", lambda compute=None: Hardware("cpu", torch.float32))
    monkeypatch.setattr(train, "HELD_OUT_PROBLEMS", HELD_OUT_PROBLEMS)


@pytest.fixture(scope="session")
def uninterrupted() -> small.Outcome:
    """What comes of the small recipe, from a trainer that nobody interrupts. Not to be changed."""
    torch.set_num_threads(1)
    lines: list[train.Metrics] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "HELD_OUT_PROBLEMS", HELD_OUT_PROBLEMS)
        done = small.train(small.trainer(small.SMALL), lines.append)
    return small.weights(done), small.untimed([line.content() for line in lines])
