"""Torch with one thread: two that share an operation wait for each other beside other work."""

import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)
