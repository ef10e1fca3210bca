"""Encodings in bfloat16 and float32 stay near themselves in float64, far out and at sharp scores.

bfloat16 holds 8 bits: the indices 3000 and 3001 are one number, a score of 12 moves in steps of
0.06. So angles, biases, softmaxes, sums and means are taken in float32 or wider.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.contracts import examples
from tape_arith.arith.registry.locate import known_names
from tape_arith.models.attention import Eager, causal_softmax, scaled_scores
from tape_arith.models.decoder import RMSNorm
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.encodings.cope import CoPELayer
from tape_arith.models.encodings.path import PaTHLayer
from tape_arith.models.encodings.stick_breaking import StickBreakingLayer
from tape_arith.models.encodings.tape_heads import TapeHeadsState
from tape_arith.models.errors import UsageError
from tape_arith.models.families.contextual import clamp_norm
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import build, error, setting

HEADS, WIDTH, HIDDEN, TOKENS, FAR = 2, 16, 32, 40, 3000
SETTING = setting(num_heads=HEADS, head_dim=WIDTH, hidden_size=HIDDEN)
TOLERANCE = 0.05


def perturbed(name: str) -> PositionalEncoding:
    torch.manual_seed(0)
    pe = build(name, SETTING).eval()
    with torch.no_grad():
        for parameter in pe.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    pe.after_step()
    return pe


def normal(*shape: int, seed: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rows(count: int, tokens: int, offset: int = 0) -> Sequences:
    ids = torch.randint(4, 14, (count, tokens), generator=torch.Generator().manual_seed(1))
    return Sequences(ids, torch.full((count,), tokens), torch.arange(count), offset)


def heads_of(
    pe: PositionalEncoding, features: tuple[Tensor, ...], dtype: torch.dtype, offset: int = 0
) -> Tensor:
    """The heads of the first layer from x, q, k, v cast to `dtype`: float64 [B, T, H, K]."""
    x, q, k, v = (feature.to(dtype) for feature in features)
    seqs = rows(len(x), x.shape[1], offset)
    low = dtype == torch.bfloat16
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=low):
        layer: Any = pe.layers[0]
        start = pe.start(x, pe.indices(seqs), seqs)
        heads: Tensor = layer.attend(x, q, k, v, start, seqs)[0]
    return heads.double()


def random_features(count: int, tokens: int, sharpness: float = 1.0) -> tuple[Tensor, ...]:
    """x, q, k, v that bfloat16 holds exactly; scores have a deviation of `sharpness`."""
    q, k, v = normal(3, count, tokens, HEADS, WIDTH)
    x = normal(count, tokens, HIDDEN, seed=3)
    return tuple(feature.bfloat16() for feature in (x, q * sharpness, k, v))


@pytest.mark.parametrize("name", known_names("encoding"))
def test_bfloat16_is_near_float64(name: str) -> None:
    pe, features = perturbed(name), random_features(2, TOKENS)
    offset = 0 if "learned" in name or name in ("fire", "bipe", "rand-fire") else FAR
    low = heads_of(pe, features, torch.bfloat16, offset)
    assert error(low, heads_of(pe.double(), features, torch.float64, offset)) < TOLERANCE


@pytest.mark.parametrize(
    "name",
    ["rope", "rope-partial", "p-rope", "xpos", "pope", "bipe", "tape", "tape-heads", "hybrid"],
)
def test_angles_are_wide(name: str) -> None:
    """Far out neighbours differ, by the angles that math gives."""
    pe = build(name, SETTING).eval()
    assert isinstance(pe, Rotary)
    cos, sin = pe.cos_sin(torch.tensor([[FAR, FAR + 1]]), rows(1, 2), torch.bfloat16)
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


def recorded(name: str, tokens: int, sharpness: float = 1.0, **fill: float) -> Recorder:
    """Attend in bfloat16, then in float64, with parameters of the first layer filled."""
    pe, features = perturbed(name), random_features(1, tokens, sharpness)
    recorder = pe.layers[0].attention = Recorder()  # type: ignore[assignment]
    with torch.no_grad():
        for path, value in fill.items():
            pe.layers[0].get_parameter(path.replace("__", ".")).fill_(value)
    heads_of(pe, features, torch.bfloat16)
    heads_of(pe.double(), features, torch.float64)
    return recorder


def test_sums_and_biases_are_wide() -> None:
    """In bfloat16 a sum of 400 angles and an index in the hundreds are off by a part of a turn, the
    late ones of 112 gates near 1 are lost in their sum, a bias of 8 is rounded to steps of 0.03."""
    low, wide = recorded("selective-rope", 400, taps=2.0).queries
    assert error(low, wide) < 0.005
    low, wide = recorded("repo", 40, position__weight=60.0).queries
    assert error(low, wide) < 0.005
    low, wide = recorded("fox", 112, gate__bias=5.0).biases
    assert low.dtype == torch.float32
    assert error(low[..., -1, -2].double(), wide[..., -1, -2]) < 1e-3
    low, wide = recorded("shaw", TOKENS, sharpness=4.0).biases
    assert float(wide.abs().max()) > 4 and error(low.double(), wide) < 1e-6


def test_the_positions_of_cope_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 112 gates near 1 add up to 112 or to 111, and both are integers."""
    seen: list[Tensor] = []
    positions = CoPELayer.positions

    def watched(self: CoPELayer, scores: Tensor) -> Tensor:
        seen.append(positions(self, scores))
        return seen[-1].double()

    monkeypatch.setattr(CoPELayer, "positions", watched)
    pe = perturbed("cope:positions=200")
    x, q, _, v = random_features(1, 112)
    for dtype, kind in ((torch.bfloat16, pe), (torch.float64, pe.double())):
        heads_of(kind, (x, q + 1, q + 1, v), dtype)
    assert seen[0].dtype == torch.float32 and float(seen[0].max()) > 64
    assert float((seen[0] - seen[1]).abs().max()) < 1e-3


def test_sinusoidal_angles_are_wide() -> None:
    """So is their sum with the tokens' embeddings."""
    pe, seqs = build("sinusoidal", SETTING), rows(1, 8, FAR)
    index = pe.indices(seqs)
    x = torch.zeros(1, 8, HIDDEN).bfloat16()
    low = pe.embed(x, index, seqs)
    assert torch.equal(low, pe.embed(x.double(), index, seqs).bfloat16())
    assert not torch.equal(low[0, 0], low[0, 1])
    x = normal(1, 8, HIDDEN).bfloat16()
    expected = pe.embed(x.double(), index, seqs).bfloat16()
    assert float((pe.embed(x, index, seqs) != expected).float().mean()) < 0.01


def test_the_softmax_is_wide() -> None:
    _, q, k, _ = random_features(2, TOKENS, sharpness=4.0)
    scores = (q.double() * WIDTH**-0.5).transpose(1, 2) @ k.double().permute(0, 2, 3, 1)
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(future, float("-inf")).softmax(-1)
    weights = causal_softmax(scaled_scores(q.float(), k.float()))
    assert weights.dtype == torch.float32 and error(weights.double(), expected) < 1e-5
    # From bfloat16 features the product rounds, the softmax of it does not.
    low = causal_softmax(scaled_scores(q, k))
    assert low.dtype == torch.float32
    assert float((low.double().sum(-1) - 1).abs().max()) < 1e-6


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_mean_of_rmsnorm_is_wide(by_hand: bool) -> None:
    """All but a few results are those of float64, rounded once."""
    norm = RMSNorm(1024, 1e-6)
    x = normal(64, 1024).bfloat16().requires_grad_(by_hand)  # what takes the written-out function
    wide = x.detach().double()
    expected = (wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()).bfloat16()
    assert float((norm(x).bfloat16() != expected).float().mean()) < 0.001


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_xpos_far_beyond_its_training(dtype: torch.dtype) -> None:
    """The decay of queries and keys leaves float32 at about 36 times the trained length."""
    pe = perturbed("xpos:scale_base=4")
    for tokens in (100, 400):
        features = random_features(2, tokens)
        wide = heads_of(pe, features, torch.float64)
        low = heads_of(pe, features, dtype)
        assert error(low, wide) < (1e-4 if dtype == torch.float32 else TOLERANCE)
        early = tuple(feature[:, :40] for feature in features)
        assert error(wide[:, :40], heads_of(pe, early, torch.float64)) < 1e-9
    with pytest.raises(UsageError, match="scale_base="):
        heads_of(build("xpos:scale_base=0.01", SETTING), features, torch.float32)
    # 400 tokens fit into float64 at test time; in training their indices reach eight times as far.
    scaled = build("aug-xpos:a=8:scale_base=1.2", SETTING).eval()
    heads_of(scaled, features, torch.float32)
    with pytest.raises(UsageError, match="3200 tokens"):
        heads_of(scaled.train(), features, torch.float32)


# ---- float32 where formulas are hard to compute ------------------------------------------------

LONG = 4 * examples.TRAINED_LENGTH


@pytest.mark.parametrize("mode", ["mixed", "high", "low"])
@pytest.mark.parametrize(
    "name",
    [
        *("fox", "cope", "stick-breaking", "path", "dape:base=alibi", "dape", "dape:base=fire"),
        "wall",
    ],
)
def test_scores_of_fifty_stay_finite(name: str, mode: str) -> None:
    """Heads and gradients, at four times the trained length, all scores +-50."""
    pe = perturbed(name)
    layer: Any = pe.layers[0]
    sign = normal(1, LONG, HEADS, 1).sign() if mode == "mixed" else torch.ones(1, LONG, HEADS, 1)
    direction = F.normalize(torch.ones(WIDTH), dim=0) * (50 * WIDTH**0.5) ** 0.5
    leaves = [
        (3 * normal(1, LONG, HIDDEN)).requires_grad_(),
        (sign * direction * (-1 if mode == "low" else 1)).requires_grad_(),
        (sign.roll(1, 1) * direction).requires_grad_(),
        normal(1, LONG, HEADS, WIDTH).requires_grad_(),
    ]
    x, q, k, v = leaves
    seqs = rows(1, LONG)
    heads, _ = layer.attend(x, q, k, v, pe.start(x, pe.indices(seqs), seqs), seqs)
    assert heads.isfinite().all()
    heads.square().sum().backward()
    for tensor in [*leaves, *layer.parameters()]:
        assert tensor.grad is None or bool(tensor.grad.isfinite().all())
    assert all(tensor.grad is not None for tensor in (q, k, v))


def test_small_remainders_of_a_stick_survive_float32() -> None:
    """One past key of score 50 before many of -50: their shares are exp(-50), not rounding."""
    scores = torch.full((1, 1, LONG, LONG), -50.0)
    scores[..., 3] = 50.0
    weights = StickBreakingLayer().weights(scores)[0, 0]
    assert float(weights[-1, 3]) == pytest.approx(1.0)
    assert float(weights[-1, 60]) == pytest.approx(math.exp(-50), rel=1e-4)
    assert float(weights[-1, 2]) == pytest.approx(math.exp(-100), rel=1e-4, abs=1e-44)
    assert float(weights[-1, -1]) == pytest.approx(math.exp(-50), rel=1e-4)


@pytest.mark.parametrize("alike", [False, True])
def test_path_is_exact_in_float32(alike: bool) -> None:
    """At 244 tokens, with reflections (beta = 2), through directions that differ or hardly do.

    Compared with one H after the other in float64.
    """
    layer, tokens = perturbed("path").layers[0].requires_grad_(False), 244
    assert isinstance(layer, PaTHLayer)
    layer.beta.weight.zero_()
    layer.beta.bias.fill_(50.0)
    x = normal(1, 1, HIDDEN).expand(1, tokens, HIDDEN) if alike else normal(1, tokens, HIDDEN)
    x = x + 0.01 * normal(1, tokens, HIDDEN, seed=5)
    q, k = normal(2, 1, tokens, HEADS, WIDTH, seed=1)
    actual = layer.scores(x, q, k, ())[0].tril()
    w = layer.double().directions(x.double())[0]
    exact = torch.zeros(HEADS, tokens, tokens, dtype=torch.float64)
    for head in range(HEADS):
        keys = k[0, :, head].double()
        for t in range(tokens):
            # Token t moves the keys before it, and not its own.
            keys[:t] = keys[:t] - 2 * (keys[:t] @ w[head, t])[:, None] * w[head, t]
            exact[head, t] = keys @ q[0, t, head].double() / WIDTH**0.5
    assert error(actual.double(), exact.tril()) < 1e-4


@pytest.mark.parametrize("tokens", [1, 3, 60, 500])
def test_strong_gates_of_wall_do_not_overflow(tokens: int) -> None:
    """Log gates from -100 to 0 in float32, against sums from every key on in float64."""
    layer: Any = perturbed("wall").layers[0]
    x, gate = normal(1, tokens, HIDDEN, seed=3), layer.gate
    with torch.no_grad():
        gate.weight.mul_(20)
        gate.bias.copy_(torch.linspace(-60, 60, len(gate.bias)))
        logits = F.linear(x.double(), gate.weight.double(), gate.bias.double())
        log_gates = F.logsigmoid(logits)[0].unflatten(-1, (HEADS, WIDTH))
    assert float(log_gates.min()) < -60 and float(log_gates.max()) > -1e-20
    q, k = normal(2, 1, tokens, HEADS, WIDTH, seed=1)
    exact = torch.zeros(HEADS, tokens, tokens, dtype=torch.float64)
    for i in range(tokens):
        since = F.pad(log_gates[i + 1 :].cumsum(0), (0, 0, 0, 0, 1, 0)).exp()
        exact[:, i:, i] = (q[0, i:].double() * k[0, i] * since).sum(-1).T / WIDTH**0.5
    scores = layer.scores(x, q.requires_grad_(), k.requires_grad_(), ())[0].tril()
    # Rounding of a sum of up to -20,000.
    assert error(scores.detach().double(), exact) < (1e-3 if tokens == 500 else 1e-4)
    scores.square().sum().backward()
    assert all(one.grad.isfinite().all() for one in (q, k, *gate.parameters()))


def test_a_clamp_has_a_gradient_everywhere() -> None:
    """At e = 0 too, where the norm has none, and above it e may turn but not grow."""
    e = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    e[..., 1], e[..., 3] = 3, 4  # one frequency of norm 0, one of norm 5
    e.requires_grad_()
    (held,) = clamp_norm(TapeHeadsState(e), 2.0)
    torch.testing.assert_close(held.detach().flatten(), e.new_tensor([0, 1.2, 0, 1.6]))
    (along,) = torch.autograd.grad((held * e.detach()).sum(), e, retain_graph=True)
    assert torch.allclose(along, torch.zeros_like(along), atol=1e-12)
    (gradient,) = torch.autograd.grad(held.sum(), e)
    assert gradient.isfinite().all()
    assert torch.equal(gradient[..., ::2], torch.ones(1, 1, 1, 2, dtype=torch.float64))
