"""That a step leaves nothing on the CPU and does not wait for the device, for machines that have no
GPU: it is torch's "meta", whose tensors have a shape and nothing in them, so that whatever asks for
a value fails; and transfers that wait are refused, be they asked for or made on the way."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tape_arith.arith.data.rows import Rows
from tape_arith.arith.registry.load import load_classes
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.scoring.score import answer_logits
from tape_arith.arith.training.recorded import PackedBatch
from tape_arith.arith.training.step import packed_gradient, summed_loss
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.build import extrapolate
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner
from tests.helpers.small_decoders import NUMBERINGS
from tests.helpers.small_training import kinds_first, small, trainer

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=8, groups=1)
NAMES = [
    *known_names("encoding"),
    *("abacus+fire", "abacus+rope", "aug-rope:per=step"),
    *("tape:form=vector", "tape:form=non-equivariant", "tape:context=no-mlp", "tape:start=fourier"),
]
WAYS = [*known_names("extrapolation"), "pi:scale=static", "yarn:scale=static"]
EXTRAPOLATED = [("rand-rope" if way in NUMBERINGS else "rope", way) for way in WAYS]
META = Hardware("meta", torch.float32, attention="eager")


class OneDevice(TorchDispatchMode):
    """Refuses what a GPU would: an operation over two devices, but for a number of the CPU's, and a
    transfer that waits for the work before it; or any, in what a CUDA graph records."""

    def __init__(self, recorded: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorded = recorded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if func is torch.ops.aten._to_copy.default:
            crosses = kwargs.get("device", args[0].device) != args[0].device
            assert not crosses or kwargs.get("non_blocking"), "a transfer that waits"
            assert not crosses or not self.recorded, "a transfer that is recorded"
        else:
            devices = {x.device.type for x in tensors if x.ndim or x.is_meta}
            assert len(devices) <= 1, f"{func} over {devices}"
        return func(*args, **kwargs)


class NoLists(TorchFunctionMode):
    """Refuses what makes a tensor of the CPU's and transfers it without a word."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor, Tensor.new_tensor):
            assert not out.is_meta, "numbers of Python's that are transferred"
        if func is Tensor.__getitem__ and args[0].is_meta:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            assert not any(isinstance(part, list) for part in index), "an index that is a list"
        return out


@pytest.fixture(autouse=True)
def autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none on "meta": the CPU's, which is off."""
    real, enabled, dtype = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
    monkeypatch.setattr(torch, "autocast", lambda _, *rest, **named: real("cpu", *rest, **named))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: enabled("cpu"))
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: dtype("cpu"))


def padded(one: Trainer) -> Rows:
    return next(one.batches.padded(*one.batches.problems(0), "cuda", 1))


def packed(one: Trainer) -> Rows:
    (rows,) = one.batches.packed(*one.batches.problems(0), 1)
    return rows


@pytest.mark.parametrize("name", kinds_first(NAMES))
def test_a_step(name: str) -> None:
    """Of a padded group and, where the encoding can take it so, of a packed batch as it is
    recorded: all that this reads is on the device before it begins."""
    one = trainer(CONFIG, name)
    decoder = one.decoder.to("meta").train()
    runner = Runner(decoder, META)
    with OneDevice(), NoLists():
        loss = summed_loss(runner, padded(one))
        gradients = torch.autograd.grad(loss, list(decoder.parameters()))
        assert {g.device.type for g in gradients} == {"meta"}
        decoder.pe.after_step()
    if decoder.pe.needs.packed:
        rows = packed(one)
        batch = PackedBatch.of(rows, len(rows.answers), one.batches.most_answers, "meta")
        with OneDevice(recorded=True), NoLists():
            assert {x.device.type for x in packed_gradient(runner, batch)} == {"meta"}


def test_a_packed_step_that_is_not_recorded() -> None:
    one = trainer(CONFIG)
    runner = Runner(one.decoder.to("meta").train(), META)
    with OneDevice(), NoLists():
        assert summed_loss(runner, packed(one)).is_meta


@pytest.mark.parametrize(
    ("name", "way"),
    [("fire", None), ("tape", None), ("tape", "yarn"), *EXTRAPOLATED],
)
def test_scoring(name: str, way: str | None) -> None:
    one = trainer(CONFIG, name)
    if way is not None:
        change = load_classes(f"{name}+{way}").extrapolation
        assert change is not None
        extrapolate(one.decoder.pe, change)
    runner = Runner(one.decoder.eval(), META)
    rows = (packed if one.decoder.pe.needs.packed else padded)(one)
    with OneDevice(), NoLists():
        assert answer_logits(runner, rows).device.type == "meta"
