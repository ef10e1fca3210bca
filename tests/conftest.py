"""Torch on the CPU with one thread: the tests compare bits, and two threads that share an
operation wait for each other beside other work. A GPU is for the tests that ask for one."""

import os
from collections.abc import Iterator

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks; subprocesses inherit it

import pytest
import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch with one thread, as `detect` leaves it, and afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
