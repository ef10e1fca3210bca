"""The fused backend equals a loop in padded and packed layouts, or says why it cannot.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.backends import Fused
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences
from tests.helpers.kernel_problems import distance
from tests.models.test_backends import K, inputs, loop, packed, padded, with_query_scale

CPU, GPU = Hardware("cpu", torch.float32), Hardware("cuda", torch.bfloat16)


@pytest.mark.parametrize("change", [replace, with_query_scale])
@pytest.mark.parametrize("layout", [padded, packed])
@pytest.mark.parametrize(("widths", "scale"), [((K,), None), ((K, 24, 5), 0.7)], ids=str)
def test_both_layouts(
    layout: Callable[[], Sequences],
    change: Callable[[Sequences], Sequences],
    widths: tuple[int, ...],
    scale: float | None,
    device: str,
) -> None:
    """The values after the first are as TAPE's first state: the same for all rows and heads."""
    seqs = change(layout())
    q, k, *values = exact = inputs(seqs, widths)
    expected = loop(q, k, values, seqs, scale or K**-0.5)
    generator = torch.Generator().manual_seed(1)
    upstream = [torch.randn(x.shape, generator=generator).double() for x in expected]
    expected += torch.autograd.grad(expected, exact, upstream)

    narrow = [x.detach().float().to(device).requires_grad_() for x in exact]
    q, k, *values = narrow
    starts = None if seqs.starts is None else seqs.starts.to(device)
    factor = None if seqs.query_scale is None else seqs.query_scale.to(device)
    moved = replace(seqs, tokens=seqs.tokens.to(device), starts=starts, query_scale=factor)
    outputs: list[Tensor] = list(Fused()(q, k, tuple(values), moved, scale=scale))
    outputs += torch.autograd.grad(outputs, narrow, [g.float().to(device) for g in upstream])
    assert distance(outputs, expected) < 3e-6


def test_when_it_says_no(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    fused, hardware = Fused(), CPU if device == "cpu" else GPU
    assert fused.why_unsupported(Needs(values=3), hardware) is None
    assert "bias" in str(fused.why_unsupported(Needs(bias="fixed"), hardware))
    assert "three" in str(fused.why_unsupported(Needs(values=4), hardware))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "GPU" in str(fused.why_unsupported(Needs(), CPU))
    monkeypatch.setitem(sys.modules, "tape_arith.models.kernels.tiles", None)
    assert "not installed" in str(fused.why_unsupported(Needs(), GPU))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert "8.0" in str(fused.why_unsupported(Needs(), GPU))
