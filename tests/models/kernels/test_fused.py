"""The fused backend equals a loop in padded and packed layouts, or says why it cannot.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.contracts.examples import decoder_for, packed_batch
from tape_arith.models.attention import Needs
from tape_arith.models.backends import Fused
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences
from tests.helpers.kernel_problems import distance
from tests.models.test_backends import H, K, check, packed, padded, with_query_scale

CPU, GPU = Hardware("cpu", torch.float32), Hardware("cuda", torch.bfloat16)


@pytest.mark.parametrize(
    ("layout", "change", "widths", "scale", "bias_heads"),
    [
        (padded, replace, (K,), None, 0),
        (padded, with_query_scale, (K, 24, 5), 0.7, 0),
        (packed, with_query_scale, (K,), None, 0),
        (packed, replace, (K, 24, 5), 0.7, 0),
        *((packed, replace, (K,), None, heads) for heads in (1, H)),
    ],
)
def test_both_layouts(
    layout: Callable[[], Sequences],
    change: Callable[[Sequences], Sequences],
    widths: tuple[int, ...],
    scale: float | None,
    bias_heads: int,
    device: str,
) -> None:
    """The values after the first are as TAPE's first state: the same for all rows and heads.

    There may be one bias for all rows, and perhaps all heads.
    """
    shape = (1, bias_heads) if bias_heads else None
    check(Fused(), change(layout()), widths, scale, shape, 3e-6, torch.float32, device)


def results(decoder: Decoder, batches: Sequence[Sequences], upstream: Tensor) -> list[Tensor]:
    """Return the logits of all batches, side by side, and the gradient of each parameter."""
    logits = torch.cat([decoder(seqs)[0] for seqs in batches if seqs.width])
    leaves = list(decoder.parameters())
    gradients = torch.autograd.grad(logits, leaves, upstream.to(logits), allow_unused=True)
    return [logits.detach(), *(x for x in gradients if x is not None)]


@pytest.mark.parametrize(
    ("name", "offset", "scale"),
    [("hard-alibi", 0, "plain"), ("t5", 0, "log"), ("abacus+fire", 40, "log")],
)
def test_a_bias_packed(name: str, offset: int, scale: str, device: str) -> None:
    """Whole decoders, with the gradients of all parameters, equal one sequence after another.

    The last indices of FIRE are beyond its threshold.
    """
    together, alone = packed_batch()
    alone = [replace(seqs, offset=offset) for seqs in alone]
    decoder = decoder_for(name, num_layers=1, attention_scale=scale)
    assert decoder.needs.packed
    shape = together.tokens.shape[1], decoder.config.vocabulary_size
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = results(decoder, alone, upstream)
    moved: dict[str, Any] = {
        key: value.to(device) for key, value in vars(together).items() if torch.is_tensor(value)
    }
    packs = replace(together, **moved, offset=offset, attention=Fused())
    # The softmax cancels some gradients, which then are rounding alone.
    pairs = zip(results(decoder.float().to(device), [packs], upstream), expected, strict=True)
    assert (
        distance(*zip(*(pair for pair in pairs if pair[1].abs().max() > 1e-9), strict=True)) < 1e-4
    )


@pytest.mark.parametrize(
    "name", ["rand-alibi", "rand-fire", "aug-fire", "aug-alibi", "shaw", "fox"]
)
def test_a_bias_of_each_sequence_is_not_packed(name: str) -> None:
    """`sdpa` takes it, in padded rows."""
    needs = decoder_for(name).needs
    assert not needs.packed and "share" in str(Fused().why_unsupported(needs, GPU))


def test_when_it_says_no(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    fused, hardware = Fused(), CPU if device == "cpu" else GPU
    assert fused.why_unsupported(Needs(values=3), hardware) is None
    assert fused.why_unsupported(Needs(bias="learned"), hardware) is None
    assert "scores" in str(fused.why_unsupported(Needs(bias="scores"), hardware))
    assert "three" in str(fused.why_unsupported(Needs(values=4), hardware))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "GPU" in str(fused.why_unsupported(Needs(), CPU))
    monkeypatch.setitem(sys.modules, "tape_arith.models.kernels.tiles", None)
    assert "not installed" in str(fused.why_unsupported(Needs(), GPU))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert "8.0" in str(fused.why_unsupported(Needs(), GPU))
