"""Encodings that depend on content: their properties, and the slips they invite.

Legend: B batch, T tokens, H heads, K head dim.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models import contract
from tape_arith.models.backends.eager import Eager
from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalLayer, Setting
from tape_arith.models.encodings.cope import CoPELayer
from tape_arith.models.encodings.dape import DAPE, DAPELayer
from tape_arith.models.encodings.fox import FoXLayer
from tape_arith.models.encodings.path import PaTHLayer
from tape_arith.models.encodings.stick_breaking import StickBreakingLayer
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences
from tests.models.test_against_naive import error

DAPES = ["dape:base=alibi", "dape", "dape:base=fire"]
NAMES = ["fox", "cope", "stick-breaking", "path", *DAPES]
LONG = 4 * contract.TRAINED_LENGTH


def setting(num_layers: int = 1, hidden_size: int = 16) -> Setting:
    return Setting(
        num_layers=num_layers,
        num_heads=2,
        head_dim=8,
        hidden_size=hidden_size,
        trained_length=contract.TRAINED_LENGTH,
        max_length=LONG,
        digit_ids=contract.DIGITS,
        separator_ids=(contract.PLUS, contract.EQUALS),
        end_id=contract.END,
    )


def layer_of(name: str) -> PositionalLayer:
    """The first layer, its parameters moved off their start; they ask for no gradient."""
    torch.manual_seed(3)
    layer = build(name, setting()).layers[0]
    assert isinstance(layer, PositionalLayer)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return layer.requires_grad_(False)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def logits(decoder: Decoder, seqs: Sequences) -> Tensor:
    return contract.forward(decoder, seqs)


def set_parameter(decoder: Decoder, ending: str, value: float) -> None:
    found = [p for n, p in decoder.named_parameters() if n.startswith("pe.") and n.endswith(ending)]
    assert found
    with torch.no_grad():
        for parameter in found:
            parameter.fill_(value)


# ---- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_no_later_token_matters(name: str) -> None:
    """All tokens from the middle on are others: not one bit of an earlier logit moves."""
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    other = seqs.tokens.clone()
    other[:, 10:] = torch.tensor([contract.END, contract.PLUS] * 5)
    before = logits(decoder, seqs)
    after = logits(decoder, replace(seqs, tokens=other))
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.equal(before[:, 10], after[:, 10])


@pytest.mark.parametrize("name", NAMES)
def test_one_layer_sees_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike NoPE, for which the same check fails (test_contract.py)."""
    made = contract.decoder_for
    monkeypatch.setattr(contract, "decoder_for", lambda name: made(name, num_layers=1))
    contract.check_order(name)


@pytest.mark.parametrize("name", [name for name in NAMES if "fire" not in name])
def test_a_shift_of_all_indices_changes_nothing(name: str) -> None:
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    for offset in (3, 1000):
        shifted = Sequences(seqs.tokens, seqs.final_length, seqs.key, offset)
        assert error(logits(decoder, shifted), logits(decoder, seqs)) < 1e-12


@pytest.mark.parametrize("mode", ["mixed", "high", "low"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_of_fifty_stay_finite(name: str, mode: str) -> None:
    """Heads and gradients in float32, at four times the trained length, all scores +-50."""
    pe, layer = build(name, setting()), layer_of(name).requires_grad_()
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
    state = pe.start(x, pe.indices(seqs), seqs)
    heads, _ = layer.attend(x, q, k, v, state, seqs)
    assert bool(heads.isfinite().all())
    heads.square().sum().backward()
    for tensor in [*leaves, *layer.parameters()]:
        assert tensor.grad is None or bool(tensor.grad.isfinite().all())
    assert all(tensor.grad is not None for tensor in (q, k, v))


@pytest.mark.parametrize("name", NAMES)
def test_two_calls_are_one(name: str) -> None:
    """In training as in evaluation: nothing is drawn."""
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    assert torch.equal(logits(decoder.train(), seqs), logits(decoder.eval(), seqs))


# ---- fox ---------------------------------------------------------------------------------------


def fox() -> FoXLayer:
    layer = layer_of("fox")
    assert isinstance(layer, FoXLayer)
    return layer


def test_fox_that_forgets_nothing_is_nope() -> None:
    decoder, seqs = contract.decoder_for("fox"), contract.example_batch()
    set_parameter(decoder, "gate.weight", 0.0)
    set_parameter(decoder, "gate.bias", 1e4)
    assert error(logits(decoder, seqs), logits(contract.decoder_for("nope"), seqs)) < 1e-12


def test_fox_multiplies_the_gates_after_the_key_up_to_the_query() -> None:
    layer, x = fox().double(), normal(2, 9, 16, dtype=torch.float64)
    bias, gates = layer.bias(x), layer.gate(x).sigmoid()
    for t in range(9):
        for i in range(t + 1):
            product = gates[:, i + 1 : t + 1].prod(1)
            torch.testing.assert_close(bias[:, :, t, i].exp(), product)


@pytest.mark.parametrize("b_f, far", [(0.0, -120 * math.log(2)), (5.0, -120 * 0.0067153)])
def test_fox_starts_where_its_bias_says(b_f: float, far: float) -> None:
    layer = build(f"fox:b_f={b_f}", setting()).layers[0]
    assert isinstance(layer, FoXLayer)
    assert 0.01 < float(layer.gate.weight.detach().std()) < 0.03
    with torch.no_grad():
        layer.gate.weight.zero_()
        bias = layer.bias(normal(1, 121, 16))
    assert float(bias[0, 0, 120, 0]) == pytest.approx(far, rel=1e-3)


def test_fox_sums_outside_bfloat16() -> None:
    """Under autocast too; in bfloat16 the late ones of 112 gates near 1 are lost in their sum."""
    seen: list[Tensor] = []

    class Watching(Eager):
        def __call__(self, q, k, values, seqs, *, scale=None, bias=None):  # type: ignore[no-untyped-def]
            seen.append(bias)
            return super().__call__(q, k, values, seqs, scale=scale, bias=bias)

    layer, x, q = fox(), normal(1, LONG, 16), normal(1, LONG, 2, 8)
    layer.attention = Watching()
    with torch.no_grad():
        layer.gate.bias.fill_(5.0)
        with torch.autocast("cpu", torch.bfloat16):
            layer.attend(x, q, q, q, (), contract.example_batch(LONG, rows=1))
        exact = layer.double().bias(x.double())
        rounded = F.logsigmoid(layer.gate(x.double())).bfloat16().cumsum(1).double()
    assert seen[0].dtype == torch.float32
    assert error(seen[0].double(), exact) < 1e-5
    last = exact[..., -1, -2]
    assert error(seen[0][..., -1, -2].double(), last) < 1e-3
    assert error((rounded[:, -1] - rounded[:, -2]), last) > 0.1


# ---- cope --------------------------------------------------------------------------------------


def cope(positions: int = 64) -> CoPELayer:
    layer = layer_of(f"cope:positions={positions}")
    assert isinstance(layer, CoPELayer)
    return layer


def test_fresh_cope_is_nope() -> None:
    decoder, seqs = contract.decoder_for("cope"), contract.example_batch()
    assert not torch.allclose(
        logits(decoder, seqs), logits(contract.decoder_for("nope"), seqs), atol=1e-2
    )
    set_parameter(decoder, "table", 0.0)
    assert error(logits(decoder, seqs), logits(contract.decoder_for("nope"), seqs)) < 1e-12
    fresh = build("cope", setting()).layers[0]
    assert isinstance(fresh, CoPELayer) and not bool(fresh.table.any())


@pytest.mark.parametrize("positions", [64, 5])
def test_cope_that_counts_every_key_is_a_relative_embedding(positions: int) -> None:
    """Gates of 1: the row of e at distance + 1, the last one from P - 1 on."""
    layer = cope(positions)
    q = k = torch.full((1, 9, 2, 8), (60 / 8**0.5) ** 0.5)
    q = q + 0.01 * normal(1, 9, 2, 8)
    ours = layer.scores(normal(1, 9, 16), q, k, ())
    for t in range(9):
        for i in range(t + 1):
            row = layer.table[min(t - i + 1, positions - 1)]
            expected = (q[0, t] * (k[0, i] / 8**0.5 + row)).sum(-1)
            torch.testing.assert_close(ours[0, :, t, i], expected)


def test_cope_counts_halves() -> None:
    """Scores of 0: gates of 1/2, positions half the distance, the middle between two rows."""
    layer, q = cope(), normal(1, 6, 2, 8)
    position = layer.positions(torch.zeros(1, 2, 6, 6))
    assert position[0, 0, 5].tolist() == [3.0, 2.5, 2.0, 1.5, 1.0, 0.5]
    ours = layer.scores(normal(1, 6, 16), q, torch.zeros_like(q), ())
    between = (layer.table[2] + layer.table[3]) / 2
    torch.testing.assert_close(ours[0, :, 5, 1], (q[0, 5] * between).sum(-1))


def test_cope_masks_before_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slip: future gates are part of every position, and a later token moves earlier logits."""

    def unmasked(self: CoPELayer, scores: Tensor) -> Tensor:
        gates = scores.sigmoid()
        return gates.flip(-1).cumsum(-1).flip(-1).clamp_max(len(self.table) - 1)

    assert bool((cope().positions(normal(1, 2, 9, 9)).triu(1) == 0).all())
    monkeypatch.setattr(CoPELayer, "positions", unmasked)
    with pytest.raises(AssertionError, match="another last token"):
        contract.check_causal("cope")


def test_cope_counts_outside_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast too: there 112 gates near 1 add up to 112 or to 111, and both are whole."""
    seen: list[Tensor] = []
    positions = CoPELayer.positions

    def watching(self: CoPELayer, scores: Tensor) -> Tensor:
        seen.append(positions(self, scores))
        return seen[-1]

    monkeypatch.setattr(CoPELayer, "positions", watching)
    layer = build("cope:positions=200", setting()).layers[0]
    assert isinstance(layer, CoPELayer)
    x, q = normal(1, LONG, 16), normal(1, LONG, 2, 8) + 1
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        layer.attend(x, q, q, q, (), contract.example_batch(LONG, rows=1))
    assert seen[0].dtype == torch.float32 and float(seen[0].max()) > 64
    gates = torch.einsum("bthk,bihk->bhti", q.double(), q.double()) / 8**0.5
    exact = gates.sigmoid().tril().flip(-1).cumsum(-1).flip(-1)
    assert float((seen[0] - exact).abs().max()) < 1e-3
    assert float((exact.bfloat16() - exact).abs().max()) > 0.1


def test_cope_needs_two_positions() -> None:
    with pytest.raises(UsageError, match="2 or more, not 1"):
        build("cope:positions=1", setting())


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


# ---- stick-breaking ----------------------------------------------------------------------------


def sticks(scores: Tensor) -> Tensor:
    layer = layer_of("stick-breaking")
    assert isinstance(layer, StickBreakingLayer)
    return layer.weights(scores)


def test_shares_of_a_stick() -> None:
    """Gates of 1/2: the nearest takes half, the next a quarter; what is left is the token's."""
    weights = sticks(torch.zeros(1, 1, 4, 4))[0, 0]
    assert weights[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    torch.testing.assert_close(weights[3], torch.tensor([1 / 8, 1 / 4, 1 / 2, 1 / 8]))


@pytest.mark.parametrize("spread", [1.0, 50.0])
def test_the_past_takes_no_more_than_there_is(spread: float) -> None:
    scores = spread * normal(2, 3, LONG, LONG, dtype=torch.float64)
    weights, gates = sticks(scores), scores.sigmoid()
    past = weights.tril(-1).sum(-1)
    assert bool((weights >= 0).all()) and bool((past <= 1 + 1e-12).all())
    torch.testing.assert_close(weights.diagonal(dim1=-2, dim2=-1), 1 - past)
    assert not bool(weights.triu(1).any())
    # A stretch of one row by the definition; the token's own score is never asked for.
    t, left = 20, torch.ones(2, 3, dtype=torch.float64)
    for i in reversed(range(t)):
        torch.testing.assert_close(weights[:, :, t, i], left * gates[:, :, t, i])
        left = left * (1 - gates[:, :, t, i])
    other = scores.clone()
    other.diagonal(dim1=-2, dim2=-1).fill_(9.0)
    assert torch.equal(sticks(other), weights)


def test_small_remainders_survive_float32() -> None:
    """One past key of score 50 before many of -50: their shares are exp(-50), not rounding."""
    scores = torch.full((1, 1, LONG, LONG), -50.0)
    scores[..., 3] = 50.0
    weights = sticks(scores)[0, 0]
    assert float(weights[-1, 3]) == pytest.approx(1.0)
    assert float(weights[-1, 60]) == pytest.approx(math.exp(-50), rel=1e-4)
    assert float(weights[-1, 2]) == pytest.approx(math.exp(-100), rel=1e-4, abs=1e-44)
    assert float(weights[-1, -1]) == pytest.approx(math.exp(-50), rel=1e-4)


# ---- path --------------------------------------------------------------------------------------


def path() -> PaTHLayer:
    layer = layer_of("path")
    assert isinstance(layer, PaTHLayer)
    return layer


def carried(layer: PaTHLayer, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Scores by the definition: each key is multiplied by one H after the other, [H, T, T]."""
    w, tokens = layer.directions(x)[0], x.shape[1]
    beta = 2 * layer.beta(x)[0].sigmoid()
    scores = torch.zeros(2, tokens, tokens, dtype=x.dtype)
    for head in range(2):
        keys = k[0, :, head].clone()
        for t in range(tokens):
            # Token t moves the keys before it, and not its own.
            along = keys[:t] @ w[head, t]
            keys[:t] = keys[:t] - beta[t, head] * along[:, None] * w[head, t]
            scores[head, t] = keys @ q[0, t, head] / 8**0.5
    return scores.tril()


def test_path_without_steps_is_nope() -> None:
    decoder, seqs = contract.decoder_for("path"), contract.example_batch()
    nope = logits(contract.decoder_for("nope"), seqs)
    assert error(logits(decoder, seqs), nope) > 1e-2
    set_parameter(decoder, "beta.weight", 0.0)
    set_parameter(decoder, "beta.bias", -1e4)
    assert error(logits(decoder, seqs), nope) < 1e-12


def test_path_multiplies_in_the_order_of_tokens() -> None:
    layer, dtype = path().double(), torch.float64
    x, q, k = normal(1, 12, 16, dtype=dtype), *normal(2, 1, 12, 2, 8, dtype=dtype).unbind()
    ours = layer.scores(x, q, k, ())[0].tril()
    torch.testing.assert_close(ours, carried(layer, x, q, k))


@pytest.mark.parametrize("alike", [False, True])
def test_path_is_exact_in_float32(alike: bool) -> None:
    """At 244 tokens, with reflections (beta = 2), through directions that differ or hardly do."""
    layer, tokens = path(), 244
    with torch.no_grad():
        layer.beta.weight.zero_()
        layer.beta.bias.fill_(50.0)
    x = normal(1, 1, 16).expand(1, tokens, 16) if alike else normal(1, tokens, 16)
    x = x + 0.01 * normal(1, tokens, 16, seed=5)
    q, k = normal(2, 1, tokens, 2, 8, seed=1).unbind()
    ours = layer.scores(x, q, k, ())[0].tril()
    exact = carried(layer.double(), *(y.double() for y in (x, q, k)))
    assert error(ours.double(), exact) < 1e-4
    longest = q.norm(dim=-1).amax() * k.norm(dim=-1).amax() / 8**0.5
    assert float(ours.abs().max()) <= float(longest) * (1 + 1e-4)


def test_path_filters_what_came_before() -> None:
    """w of a token is made of its own features and of the two before; it is of length 1."""
    layer, x = path().double(), normal(1, 9, 16, dtype=torch.float64)
    w = layer.directions(x)
    torch.testing.assert_close(
        w.norm(dim=-1), torch.ones(1, 2, 9, dtype=x.dtype), rtol=1e-3, atol=0
    )
    other = x.clone()
    other[:, 4] = 0
    moved = (layer.directions(other) - w).abs().amax((0, 1, 3)) > 0
    assert moved.tolist() == [t in (4, 5, 6) for t in range(9)]


def test_path_needs_a_rank() -> None:
    with pytest.raises(UsageError, match="1 or more, not 0"):
        build("path:rank=0", setting())


# ---- dape --------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["alibi", "kerple-log", "fire"])
def test_dape_that_adapts_nothing_is_its_base(base: str) -> None:
    seqs = contract.example_batch(2 * contract.TRAINED_LENGTH)
    decoder, alone = (contract.decoder_for(name) for name in (f"dape:base={base}", base))
    ours = dict(decoder.named_parameters())
    with torch.no_grad():
        for name, parameter in alone.pe.named_parameters():
            layer, dot, rest = name.partition(".")[2].partition(".")
            inner = f"layers.{layer}.base.{rest}" if dot else f"base.{name}"
            ours.pop(f"pe.{inner}").copy_(parameter)
    # Nothing but the MLPs is left, and that is what tells the two apart.
    own = [name for name in ours if name.startswith("pe.")]
    assert own and all(".mlp_" in name for name in own)
    expected = logits(alone, seqs)
    assert error(logits(decoder, seqs), expected) > 1e-2
    set_parameter(decoder, "mlp_output.weight", 0.0)
    set_parameter(decoder, "mlp_output.bias", 0.0)
    assert error(logits(decoder, seqs), expected) < 1e-12


def test_dape_on_fire_normalizes_beyond_l() -> None:
    """FIRE's shift shows once queries lie beyond L; below it nothing moves."""
    seqs = contract.example_batch(20)
    for init_l, moves in ((1000, False), (5, True)):
        decoder = contract.decoder_for("dape:base=fire")
        for name, parameter in decoder.named_parameters():
            if name.endswith("l_multiplier"):
                with torch.no_grad():
                    parameter.fill_(init_l / contract.TRAINED_LENGTH)
        shifted = Sequences(seqs.tokens, seqs.final_length, seqs.key, 30)
        change = error(logits(decoder, shifted), logits(decoder, seqs))
        assert change > 1e-6 if moves else change < 1e-12


def test_dape_mixes_heads_of_one_pair() -> None:
    """A score of one head moves the logits of all heads, of this pair and of no other."""
    layer = layer_of("dape")
    assert isinstance(layer, DAPELayer)
    scores, bias = normal(1, 2, 7, 7), normal(1, 2, 7, 7, seed=1)
    other = scores.clone()
    other[0, 0, 5, 3] += 1
    moved = layer.adaptation(other, bias) != layer.adaptation(scores, bias)
    assert moved.nonzero().tolist() == [[0, 0, 5, 3], [0, 1, 5, 3]]


def test_dape_lets_its_base_clamp() -> None:
    pe = build("dape", setting())
    assert isinstance(pe, DAPE)
    with torch.no_grad():
        for parameter in pe.base.parameters():
            parameter.fill_(-1.0)
    pe.after_step()
    assert [float(p.detach().min()) > 0 for p in pe.base.parameters()] == [True, True]


def test_dape_needs_a_width_and_a_known_base() -> None:
    with pytest.raises(UsageError, match="1 or more, not 0"):
        build("dape:width=0", setting())
    with pytest.raises(UsageError, match="alibi"):
        build("dape:base=rope", setting())
