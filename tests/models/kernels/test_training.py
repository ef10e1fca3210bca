"""A training with the fused backend, packed, equals one with plain products in padded rows."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tape_arith.models import compiling
from tape_arith.models.hardware import Hardware
from tests.helpers.cuda_graphs import on_cpu
from tests.helpers.small_training import perturbed, small, trainer


@pytest.fixture(autouse=True)
def without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks are traced as for a GPU, and no code is generated."""
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": "aot_eager"})
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(("compiled", "leading_bos"), [(False, 3), (True, 0)])
def test_a_learned_bias(compiled: bool, leading_bos: int, device: str) -> None:
    if device != "cpu":
        pytest.skip("test_on_gpu.py compares them there")
    config = small(trained_digits=4, tested_digits=6, batch_size=4, leading_bos=leading_bos)
    hardware = Hardware("cpu", torch.float32, attention="fused", compiled=compiled)
    plain, fused = trainer(config, "fire"), trainer(config, "fire", hardware=hardware)
    assert fused.runner.packs and not plain.runner.packs
    perturbed(plain.decoder)
    perturbed(fused.decoder)
    for _ in range(3):
        expected, expected_norm = plain.train_step()
        loss, norm = fused.train_step()
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm, expected_norm, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tape", "fire"])
def test_a_recorded_step(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels read the lengths from the device, where the next batch has others."""
    if device != "cpu":
        pytest.skip("test_on_gpu.py records a real graph there")
    graphs = on_cpu(monkeypatch)
    config = small(trained_digits=2, tested_digits=3, batch_size=3, num_layers=1)
    fused = Hardware("cpu", torch.float32, attention="fused")
    plain, graph = (
        trainer(config, name, hardware=replace(fused, recorded=on)) for on in (False, True)
    )
    for one in (plain, graph):
        perturbed(one.decoder)
    losses = [[float(one.train_step()[0]) for _ in range(2)] for one in (plain, graph)]
    assert losses[0] == losses[1] and [each.replays for each in graphs] == [2]
