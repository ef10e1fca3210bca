"""The backend: layouts of the seam in, layouts of the seam out; and when it says no.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

import pytest
import torch
from torch import Tensor

from tape_arith.models.backends.backend import Needs
from tape_arith.models.backends.fused import Fused
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences
from tests.models.kernels.problem import distance

CPU, GPU = Hardware("cpu", torch.float32), Hardware("cuda", torch.bfloat16)
B, T, H, K = 3, 7, 2, 16


def sequences(device: str, starts: list[int] | None) -> Sequences:
    shape = (B, T) if starts is None else (1, B * T)
    n = B if starts is None else len(starts) - 1
    tokens = torch.zeros(shape, dtype=torch.int64, device=device)
    ends = None if starts is None else torch.tensor(starts, dtype=torch.int32, device=device)
    final = torch.full((n,), T, device=device)
    return Sequences(tokens, final, final, starts=ends, longest=2 * T)


def loop(
    q: Tensor, k: Tensor, values: list[Tensor], spans: list[tuple[int, int, int]], scale: float
) -> list[Tensor]:
    """One query at a time, of the spans (row, first, last); zeros elsewhere."""
    outputs = [torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype) for v in values]
    for b, first, last in spans:
        for t in range(first, last):
            past = slice(first, t + 1)
            weights = torch.einsum("hk,shk->hs", q[b, t], k[b, past]).mul(scale).softmax(-1)
            for output, v in zip(outputs, values, strict=True):
                shared = v.expand(*q.shape[:3], -1)[b, past]
                output[b, t] = torch.einsum("hs,shv->hv", weights, shared)
    return outputs


@pytest.mark.parametrize("starts", [None, [0, 5, 5, 18]], ids=["padded", "packed"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_both_layouts(
    starts: list[int] | None, shared: bool, scale: float | None, device: str
) -> None:
    """A row that is padded is a sequence of all its tokens. The second value is as it was first:
    the same of all rows and heads."""
    generator = torch.Generator().manual_seed(0)
    rows, tokens = (B, T) if starts is None else (1, B * T)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (rows, tokens, H)
    state = noise(1, tokens, 1, 24) if shared else noise(*shape, 24)
    inputs = [noise(*shape, K), noise(*shape, K), noise(*shape, K), state]
    given = [noise(*shape, K), noise(*shape, 24)]

    exact = [x.requires_grad_() for x in inputs]
    ends = [(b, 0, T) for b in range(B)] if starts is None else [(0, 0, 5), (0, 5, 18)]
    q, k, *values = exact
    expected = loop(q, k, values, ends, scale or K**-0.5)
    expected += torch.autograd.grad(expected, exact, given)

    narrow = [x.detach().float().to(device).requires_grad_() for x in inputs]
    q, k, *values = narrow
    found = list(Fused()(q, k, tuple(values), sequences(device, starts), scale=scale))
    assert [x.shape for x in found] == [(*shape, K), (*shape, 24)]
    found += torch.autograd.grad(found, narrow, [g.float().to(device) for g in given])
    assert distance(found, expected) < 3e-6


def test_when_it_says_no(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    fused = Fused()
    here = CPU if device == "cpu" else GPU
    assert fused.why_unsupported(Needs(values=3), here) is None
    assert "bias" in (fused.why_unsupported(Needs(bias="fixed"), here) or "")
    assert "three" in (fused.why_unsupported(Needs(values=4), here) or "")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "GPU" in (fused.why_unsupported(Needs(), CPU) or "")


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape_arith.models.kernels.language.AVAILABLE", False)
    assert "not installed" in (Fused().why_unsupported(Needs(), GPU) or "")


def test_an_old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert "8.0" in (Fused().why_unsupported(Needs(), GPU) or "")
