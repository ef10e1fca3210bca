"""Encodings that depend on content, at the sizes where their own formulas are hard to compute.

Legend: B batch, T tokens, H heads, K head dim.
"""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models import contract
from tape_arith.models.build import build
from tape_arith.models.encoding import PositionalLayer
from tape_arith.models.encodings.cope import CoPELayer
from tape_arith.models.encodings.fox import FoXLayer
from tape_arith.models.encodings.path import PaTHLayer
from tape_arith.models.encodings.selective_rope import SelectiveRoPELayer
from tape_arith.models.encodings.stick_breaking import StickBreakingLayer
from tests.helpers.small_decoders import error, setting

NAMES = ["fox", "cope", "stick-breaking", "path", "dape:base=alibi", "dape", "dape:base=fire"]
LONG = 4 * contract.TRAINED_LENGTH
SETTING = setting(num_layers=1, hidden_size=16, max_length=LONG)


def layer_of(name: str) -> PositionalLayer:
    """The first layer, its parameters moved off their start; they ask for no gradient."""
    torch.manual_seed(3)
    layer = build(name, SETTING).layers[0]
    assert isinstance(layer, PositionalLayer)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return layer.requires_grad_(False)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("mode", ["mixed", "high", "low"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_of_fifty_stay_finite(name: str, mode: str) -> None:
    """Heads and gradients in float32, at four times the trained length, all scores +-50."""
    pe, layer = build(name, SETTING), layer_of(name).requires_grad_()
    sign = normal(1, LONG, 2, 1).sign() if mode == "mixed" else torch.ones(1, LONG, 2, 1)
    length = (50 * 8**0.5) ** 0.5
    direction = F.normalize(torch.ones(8), dim=0) * length
    leaves = [
        (3 * normal(1, LONG, 16)).requires_grad_(),
        (sign * direction * (-1 if mode == "low" else 1)).requires_grad_(),
        (sign.roll(1, 1) * direction).requires_grad_(),
        normal(1, LONG, 2, 8, seed=1).requires_grad_(),
    ]
    x, q, k, v = leaves
    seqs = contract.example_batch(LONG, rows=1)
    heads, _ = layer.attend(x, q, k, v, pe.start(x, pe.indices(seqs), seqs), seqs)
    assert bool(heads.isfinite().all())
    heads.square().sum().backward()
    for tensor in [*leaves, *layer.parameters()]:
        assert tensor.grad is None or bool(tensor.grad.isfinite().all())
    assert all(tensor.grad is not None for tensor in (q, k, v))


@pytest.mark.parametrize(("b_f", "far"), [(0.0, -120 * math.log(2)), (5.0, -120 * 0.0067153)])
def test_fox_starts_where_its_bias_says(b_f: float, far: float) -> None:
    layer = build(f"fox:b_f={b_f}", SETTING).layers[0]
    assert isinstance(layer, FoXLayer)
    with torch.no_grad():
        layer.gate.weight.zero_()
        bias = layer.bias(normal(1, 121, 16))
    assert float(bias[0, 0, 120, 0]) == pytest.approx(far, rel=1e-3)


def cope(positions: int = 64) -> CoPELayer:
    layer = layer_of(f"cope:positions={positions}")
    assert isinstance(layer, CoPELayer)
    return layer


def test_cope_masks_before_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slip: future gates are part of every position, and a later token moves earlier logits."""

    def unmasked(self: CoPELayer, scores: Tensor) -> Tensor:
        gates = scores.sigmoid()
        return gates.flip(-1).cumsum(-1).flip(-1).clamp_max(len(self.table) - 1)

    assert bool((cope().positions(normal(1, 2, 9, 9)).triu(1) == 0).all())
    monkeypatch.setattr(CoPELayer, "positions", unmasked)
    with pytest.raises(AssertionError, match="another last token"):
        contract.check_causal("cope")


@pytest.mark.slow
@pytest.mark.parametrize("positions", [64, 7])
def test_cope_of_x_transformers(positions: int) -> None:
    """Their CoPE gives what is added to scores that are scaled and masked already."""
    theirs = pytest.importorskip("x_transformers.x_transformers").CoPE(
        dim=8, heads=2, max_pos=positions
    )
    layer, tokens = cope(positions), 40
    with torch.no_grad():
        theirs.pos_emb.copy_(layer.table)
    q, k = normal(3, tokens, 2, 8), normal(3, tokens, 2, 8, seed=1)
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = torch.einsum("bthk,bihk->bhti", q, k) / 8**0.5
    masked = scores.masked_fill(future, -torch.finfo(torch.float32).max)
    expected = scores + theirs(q.transpose(1, 2), masked)
    ours = layer.scores(normal(3, tokens, 16), q, k, ())
    torch.testing.assert_close(ours.tril(), expected.tril(), rtol=1e-5, atol=1e-5)


def stick_weights(scores: Tensor) -> Tensor:
    layer = layer_of("stick-breaking")
    assert isinstance(layer, StickBreakingLayer)
    return layer.weights(scores)


@pytest.mark.parametrize("spread", [1.0, 50.0])
def test_the_past_takes_no_more_than_a_stick(spread: float) -> None:
    scores = spread * normal(2, 3, LONG, LONG, dtype=torch.float64)
    weights = stick_weights(scores)
    past = weights.tril(-1).sum(-1)
    assert bool((weights >= 0).all()) and bool((past <= 1 + 1e-12).all())
    torch.testing.assert_close(weights.diagonal(dim1=-2, dim2=-1), 1 - past)
    # The token's own score is never used.
    scores.diagonal(dim1=-2, dim2=-1).fill_(9.0)
    assert torch.equal(stick_weights(scores), weights)


def test_small_remainders_of_a_stick_survive_float32() -> None:
    """One past key of score 50 before many of -50: their shares are exp(-50), not rounding."""
    scores = torch.full((1, 1, LONG, LONG), -50.0)
    scores[..., 3] = 50.0
    weights = stick_weights(scores)[0, 0]
    assert float(weights[-1, 3]) == pytest.approx(1.0)
    assert float(weights[-1, 60]) == pytest.approx(math.exp(-50), rel=1e-4)
    assert float(weights[-1, 2]) == pytest.approx(math.exp(-100), rel=1e-4, abs=1e-44)
    assert float(weights[-1, -1]) == pytest.approx(math.exp(-50), rel=1e-4)


@pytest.mark.parametrize("alike", [False, True])
def test_path_is_exact_in_float32(alike: bool) -> None:
    """At 244 tokens, with reflections (beta = 2), through directions that differ or hardly do.
    Compared with one H after the other in float64."""
    layer, tokens = layer_of("path"), 244
    assert isinstance(layer, PaTHLayer)
    with torch.no_grad():
        layer.beta.weight.zero_()
        layer.beta.bias.fill_(50.0)
    x = normal(1, 1, 16).expand(1, tokens, 16) if alike else normal(1, tokens, 16)
    x = x + 0.01 * normal(1, tokens, 16, seed=5)
    q, k = normal(2, 1, tokens, 2, 8, seed=1).unbind()
    ours = layer.scores(x, q, k, ())[0].tril()
    w = layer.double().directions(x.double())[0]
    exact = torch.zeros(2, tokens, tokens, dtype=torch.float64)
    for head in range(2):
        keys = k[0, :, head].double()
        for t in range(tokens):
            # Token t moves the keys before it, and not its own.
            keys[:t] = keys[:t] - 2 * (keys[:t] @ w[head, t])[:, None] * w[head, t]
            exact[head, t] = keys @ q[0, t, head].double() / 8**0.5
    assert error(ours.double(), exact.tril()) < 1e-4


def test_angles_of_selective_rope_accumulate() -> None:
    """A token reaches four steps and all later angles; the published skip_conv takes a difference
    before the sum, which leaves the step itself."""
    layer = layer_of("selective-rope").double()
    assert isinstance(layer, SelectiveRoPELayer)
    seqs, x = contract.example_batch(30, rows=1), normal(1, 30, 16, dtype=torch.float64)
    other = x.clone()
    other[:, 10] += 1
    change = layer.cumulative_angles(other, seqs) - layer.cumulative_angles(x, seqs)
    assert not change[:, :10].any() and float(change[:, -1].abs().max()) > 1e-6
    steps = change.diff(dim=1, prepend=torch.zeros_like(change[:, :1])).abs().amax((0, 2, 3))
    assert bool((steps[10:14] > 1e-6).all()) and float(steps[14:].max()) < 1e-12
    # The size of x does not matter, but its direction does.
    assert error(layer.cumulative_angles(9 * x, seqs), layer.cumulative_angles(x, seqs)) < 1e-5
    assert error(layer.cumulative_angles(-x, seqs), -layer.cumulative_angles(x, seqs)) < 1e-12
