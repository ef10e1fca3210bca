"""On a GPU every encoding gives the loss and the gradients that it gives in float64 on a CPU."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.arith.decoders.build import setting_for
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.training.step import trained_parameters
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.backends import BACKENDS, load_backend
from tape_arith.models.hardware import Hardware
from tests.helpers.small_decoders import build
from tests.helpers.small_training import perturbed, small, trainer

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

CONFIG = small(
    trained_digits=6,
    tested_digits=12,
    hidden_size=32,
    head_dim=16,
    mlp_size=32,
    batch_size=24,
)
HALF = 0.02
"""Tolerance in bfloat16; on a CPU the errors are 0.001 to 0.005, in float32 below 3e-7."""
NAMES = [*known_names("encoding"), "abacus+fire", "tape:form=vector", "tape:context=no-mlp"]
PACKABLE = [name for name in NAMES if build(name, setting_for(CONFIG)).needs.packed]


def gradients(name: str, hardware: Hardware, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return the loss and the gradient of each parameter, for the first batch."""
    one = small_trainer(name, hardware, dtype)
    problems, keys = one.batches.problems(0)
    loss = one.accumulate_gradient(problems, keys, 100)
    pieces = [p.grad for p in trained_parameters(one.decoder).values()]
    return [x.detach().double().cpu() for x in (loss, *pieces) if x is not None]


def small_trainer(name: str, hardware: Hardware, dtype: torch.dtype) -> Trainer:
    one = trainer(CONFIG, name, hardware=hardware)
    perturbed(one.decoder.cpu(), 0.1).to(hardware.device, dtype)
    return one


def error(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Return the distance of all numbers together, relative to the expected ones."""
    assert len(actual) == len(expected)
    flat, exact = (torch.cat([x.flatten() for x in each]) for each in (actual, expected))
    return float((flat - exact).norm() / exact.norm())


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding(name: str) -> None:
    expected = gradients(name, Hardware("cpu", torch.float32), torch.float64)
    needs = trainer(CONFIG, name).decoder.pe.needs
    for backend in ("auto", *BACKENDS):
        hardware = Hardware("cuda", torch.float32, attention=backend, compiled=False)
        if backend == "auto" or load_backend(backend).why_unsupported(needs, hardware) is None:
            assert error(gradients(name, hardware), expected) < 1e-5, backend
    half = Hardware("cuda", torch.bfloat16, compiled=False)
    assert error(gradients(name, half), expected) < HALF


@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
@pytest.mark.parametrize("name", [*PACKABLE, "aug-rope:per=step"])
def test_a_recorded_training(name: str) -> None:
    """One CUDA graph gives the losses of plain steps; with blocks compiled for a few."""
    compiled = name in ("rope", "fire", "tape")
    hardware = Hardware("cuda", torch.float32, compiled=compiled)
    plain = small_trainer(name, hardware, torch.float32)
    graph = small_trainer(name, replace(hardware, recorded=True), torch.float32)
    losses = [[float(one.train_step()[0]) for _ in range(6)] for one in (plain, graph)]
    assert graph.why_not_recorded is None
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
@pytest.mark.parametrize("name", ["rope", "fire", "tape"])
def test_compiled_blocks(name: str) -> None:
    expected = gradients(name, Hardware("cpu", torch.float32), torch.float64)
    compiled = Hardware("cuda", torch.bfloat16, compiled=True)
    assert error(gradients(name, compiled), expected) < HALF
