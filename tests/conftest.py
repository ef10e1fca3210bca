"""Torch on the CPU with one thread: the tests compare bits, and two threads that share an
operation wait for each other beside other work. A GPU is for the tests that ask for one."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks; subprocesses inherit it

import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)
