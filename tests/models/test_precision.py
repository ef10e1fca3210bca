"""Encodings in bfloat16 stay near themselves in float64, far out and at sharp scores.

bfloat16 holds 8 bits: the indices 3000 and 3001 are one number, a score of 12 moves in steps of
0.06. So angles, biases, softmaxes, sums and means are taken in float32 or wider.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.attention import Eager, attention_weights
from tape_arith.models.build import build
from tape_arith.models.decoder import RMSNorm
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.cope import CoPELayer
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.names.locate import known_names
from tape_arith.models.sequences import Sequences
from tests.helpers import small_decoders

HEADS, WIDTH, HIDDEN, TOKENS = 2, 16, 32, 40
FAR = 3000
TOLERANCE = 0.05
SETTING = small_decoders.setting(
    num_heads=HEADS, head_dim=WIDTH, hidden_size=HIDDEN, trained_length=28, max_length=52
)


def perturbed(name: str, setting: Setting = SETTING) -> PositionalEncoding:
    torch.manual_seed(0)
    pe = build(name, setting).eval()
    with torch.no_grad():
        for parameter in pe.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    pe.after_step()
    return pe


def heads_of(
    pe: PositionalEncoding, features: tuple[Tensor, ...], dtype: torch.dtype, offset: int
) -> Tensor:
    """The heads of the first layer from x, q, k, v cast to `dtype`: float64 [B, T, H, K]."""
    x, q, k, v = (feature.to(dtype) for feature in features)
    tokens = torch.randint(4, 14, x.shape[:2], generator=torch.Generator().manual_seed(1))
    lengths = torch.full((len(x),), x.shape[1])
    seqs = Sequences(tokens, lengths, torch.arange(len(x)), offset)
    index = pe.indices(seqs)
    low = dtype == torch.bfloat16
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=low):
        layer: Any = pe.layers[0]
        heads: Tensor = layer.attend(x, q, k, v, pe.start(x, index, seqs), seqs)[0]
    return heads.double()


def random_features(rows: int, tokens: int, sharpness: float) -> tuple[Tensor, ...]:
    """x, q, k, v that bfloat16 holds exactly; scores have a deviation of `sharpness`."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(rows, tokens, HIDDEN, generator=generator)
    q, k, v = torch.randn(3, rows, tokens, HEADS, WIDTH, generator=generator)
    return tuple(feature.bfloat16() for feature in (x, q * sharpness, k, v))


def largest_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


ROTARY = ("rope", "rope-partial", "p-rope", "xpos", "pope", "bipe", "tape", "tape-heads")


@pytest.mark.parametrize("name", ROTARY)
def test_angles_are_wide(name: str) -> None:
    """Far out neighbours differ, by the angles that math gives."""
    pe = build(name, SETTING).eval()
    assert isinstance(pe, Rotary)
    ids = torch.zeros(1, 2, dtype=torch.int64)
    seqs = Sequences(ids, torch.tensor([2]), torch.tensor([0]))
    cos, sin = pe.cos_sin(torch.tensor([[FAR, FAR + 1]]), seqs, torch.bfloat16)
    theta = pe.spread(pe.frequencies()).tolist()
    for token in (0, 1):
        angles = [(FAR + token) * t for t in theta]
        assert cos[0, token, 0].tolist() == pytest.approx([math.cos(a) for a in angles], abs=1e-6)
        assert sin[0, token, 0].tolist() == pytest.approx([math.sin(a) for a in angles], abs=1e-6)


class Recorder(Eager):
    """Eager attention that keeps what it was called with."""

    def __init__(self) -> None:
        self.queries: list[Tensor] = []
        self.biases: list[Tensor] = []

    def __call__(self, q: Tensor, *arguments: Any, bias: Any = None, **options: Any) -> Any:
        self.queries.append(q.double())
        self.biases.append(bias)
        return super().__call__(q, *arguments, bias=bias, **options)


def test_running_sums_of_selective_rope_are_wide() -> None:
    """Over 400 tokens a sum in bfloat16 is off by a part of a turn."""
    pe, features, recorder = perturbed("selective-rope"), random_features(1, 400, 1.0), Recorder()
    with torch.no_grad():
        pe.layers[0].get_parameter("taps").mul_(10)
    pe.layers[0].attention = recorder  # type: ignore[assignment]
    heads_of(pe, features, torch.bfloat16, 0)
    heads_of(pe.double(), features, torch.float64, 0)
    assert largest_error(*recorder.queries) < 0.005


def test_the_sums_of_fox_are_wide() -> None:
    """In bfloat16 the late ones of 112 gates near 1 are lost in their sum."""
    pe, features, recorder = perturbed("fox"), random_features(1, 112, 1.0), Recorder()
    pe.layers[0].attention = recorder  # type: ignore[assignment]
    with torch.no_grad():
        pe.layers[0].get_parameter("gate.bias").fill_(5.0)
    heads_of(pe, features, torch.bfloat16, 0)
    heads_of(pe.double(), features, torch.float64, 0)
    low, expected = recorder.biases
    assert low.dtype == torch.float32
    assert largest_error(low[..., -1, -2].double(), expected[..., -1, -2]) < 1e-3


def test_the_positions_of_cope_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 112 gates near 1 add up to 112 or to 111, and both are whole."""
    seen: list[Tensor] = []
    positions = CoPELayer.positions

    def watched(self: CoPELayer, scores: Tensor) -> Tensor:
        seen.append(positions(self, scores))
        return seen[-1].double()

    monkeypatch.setattr(CoPELayer, "positions", watched)
    pe = perturbed("cope:positions=200")
    x, q, _, v = random_features(1, 112, 1.0)
    for dtype, kind in ((torch.bfloat16, pe), (torch.float64, pe.double())):
        heads_of(kind, (x, q + 1, q + 1, v), dtype, 0)
    assert seen[0].dtype == torch.float32 and float(seen[0].max()) > 64
    assert float((seen[0] - seen[1]).abs().max()) < 1e-3


def test_the_bias_of_shaw_is_wide() -> None:
    """bfloat16 would round a bias of 8 to steps of 0.03."""
    pe, features, recorder = perturbed("shaw"), random_features(1, TOKENS, 4.0), Recorder()
    pe.layers[0].attention = recorder  # type: ignore[assignment]
    heads_of(pe, features, torch.bfloat16, 0)
    heads_of(pe.double(), features, torch.float64, 0)
    low, expected = recorder.biases
    assert float(expected.abs().max()) > 4
    assert largest_error(low.double(), expected) < 1e-6


@pytest.mark.parametrize("name", sorted(known_names("encoding")))
def test_bfloat16_is_near_float64(name: str) -> None:
    pe, features = perturbed(name), random_features(2, TOKENS, sharpness=1.0)
    offset = 0 if "learned" in name or name in ("fire", "bipe", "rand-fire") else FAR
    low = heads_of(pe, features, torch.bfloat16, offset)
    assert low.isfinite().all()
    assert largest_error(low, heads_of(pe.double(), features, torch.float64, offset)) < TOLERANCE


def test_the_softmax_is_wide() -> None:
    _, q, k, _ = random_features(2, TOKENS, sharpness=4.0)
    scores = (q.double() * WIDTH**-0.5).transpose(1, 2) @ k.double().permute(0, 2, 3, 1)
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(future, float("-inf")).softmax(-1)
    weights = attention_weights(q.float(), k.float())
    assert weights.dtype == torch.float32
    assert largest_error(weights.double(), expected) < 1e-5
    # From bfloat16 features the product rounds, the softmax of it does not.
    low = attention_weights(q, k)
    assert low.dtype == torch.float32
    assert float((low.double().sum(-1) - 1).abs().max()) < 1e-6


def test_sinusoidal_angles_are_wide() -> None:
    pe = build("sinusoidal", SETTING)
    seqs = Sequences(
        torch.zeros(1, 8, dtype=torch.int64), torch.tensor([8]), torch.tensor([0]), FAR
    )
    index = pe.indices(seqs)
    x = torch.zeros(1, 8, HIDDEN).bfloat16()
    low = pe.embed(x, index, seqs)
    assert torch.equal(low, pe.embed(x.double(), index, seqs).bfloat16())
    assert not torch.equal(low[0, 0], low[0, 1])
    # So is their sum with the tokens' embeddings.
    x = torch.randn(1, 8, HIDDEN, generator=torch.Generator().manual_seed(4)).bfloat16()
    expected = pe.embed(x.double(), index, seqs).bfloat16()
    assert float((pe.embed(x, index, seqs) != expected).float().mean()) < 0.01


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_mean_of_rmsnorm_is_wide(by_hand: bool) -> None:
    """All but a few results are those of float64, rounded once."""
    norm = RMSNorm(1024, 1e-6)
    x = torch.randn(64, 1024, generator=torch.Generator().manual_seed(3)).bfloat16()
    x = x.requires_grad_(by_hand)  # what takes the written-out function on a CPU
    wide = x.detach().double()
    expected = (wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()).bfloat16()
    assert float((norm(x).bfloat16() != expected).float().mean()) < 0.001


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [300, 1400])
def test_xpos_far_beyond_its_training(dtype: torch.dtype, tokens: int) -> None:
    """The decay of queries and keys leaves float32 at about 36 times the trained length."""
    pe, features = perturbed("xpos"), random_features(2, tokens, sharpness=1.0)
    low = heads_of(pe, features, dtype, 0)
    assert low.isfinite().all()
    wide = heads_of(pe, features, torch.float64, 0)
    assert largest_error(low, wide) < (1e-4 if dtype == torch.float32 else TOLERANCE)
    early = tuple(feature[:, :40] for feature in features)
    assert largest_error(wide[:, :40], heads_of(pe, early, torch.float64, 0)) < 1e-9


def test_xpos_refuses_what_no_type_holds() -> None:
    pe = build("xpos:scale_base=0.01", replace(SETTING, max_length=20))
    with pytest.raises(UsageError, match="scale_base="):
        heads_of(pe, random_features(1, TOKENS, 1.0), torch.float32, 0)
