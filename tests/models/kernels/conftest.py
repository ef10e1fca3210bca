"""Kernels run in Triton's interpreter; where this folder is tested alone and there is a GPU, there.

The variable that asks for the interpreter stays set: parts of Triton that are imported later would
not fit those that were imported with it.
"""

import importlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    folder = config.invocation_params.dir
    alone = all((folder / arg.split("::")[0]).is_relative_to(HERE) for arg in config.args)
    # The suite hides GPUs, and once torch has looked for them it does not look again.
    hidden = os.environ.pop("CUDA_VISIBLE_DEVICES", None) if alone else None
    if alone and torch.cuda.is_available():
        return
    os.environ["TRITON_INTERPRET"] = "1"
    if hidden is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = hidden
    # Where tests of other folders imported kernels first, which are for a GPU.
    for name in ("tiles", "short", "long", "bias_gradient"):
        if (module := sys.modules.get(f"tape_arith.models.kernels.{name}")) is not None:
            importlib.reload(module)


@pytest.fixture(scope="session")
def device() -> str:
    """Return the device of the kernels in these tests."""
    from tape_arith.models.kernels.tiles import INTERPRETED

    assert torch.cuda.is_available() != INTERPRETED
    return "cpu" if INTERPRETED else "cuda"
