"""Torch with one thread, as `detect` leaves it: bits depend on the number."""

from collections.abc import Iterator

import pytest
import torch

from arith.suite import runs, trainers
from arith.training import train
from models.hardware import Hardware


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that log, evaluate and save every few steps, on one thread in float32."""
    monkeypatch.setattr(runs, "LOG_EVERY", 5)
    monkeypatch.setattr(runs, "EVALUATE_EVERY", 10)
    monkeypatch.setattr(runs, "SAVE_EVERY", 10)
    monkeypatch.setattr(trainers, "detect", lambda attention="auto": Hardware("cpu", torch.float32))
    monkeypatch.setattr(train, "HELD_OUT_PROBLEMS", 32)
