"""TAPE in both forms: its symmetries, how it starts, its ablations and its clamp.

The claim (paper, Eq. 4 and 5, and Proposition 1): turn the initial state by an orthogonal R and
all later states turn alike while the logits stay. A shift of all positions turns each frequency by
an angle of its own, so what matters is an independent R_f for each frequency. The networks have
large position updates: at initialization TAPE *is* RoPE.

Legend: B batch, T tokens, H heads, F frequencies, L = D = 2.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.attention import Backend
from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder, DecoderConfig, matmuls
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.encodings.tape_heads import TapeHeadsState
from tape_arith.models.errors import UsageError
from tape_arith.models.families.contextual import clamp_norm
from tape_arith.models.names.locate import locate
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences
from tests.helpers.flops import counted, padded
from tests.helpers.small_decoders import VOCABULARY, error, setting_of
from tests.models.test_oracles import ABLATIONS, CLAMPED

NUM_LAYERS, HIDDEN, NUM_HEADS, HEAD_DIM, TOKENS = 6, 32, 4, 8, 40
FREQUENCIES = HEAD_DIM // 2
CONFIG = DecoderConfig(VOCABULARY, NUM_LAYERS, HIDDEN, NUM_HEADS, HEAD_DIM, 2 * HIDDEN)
SETTING = setting_of(CONFIG)
# With all that may be taken from them or added and keeps the symmetry. The clamps are such that
# they act on most of e, and not on all.
TAPE = (
    "tape",
    "tape:start=fourier",
    "tape:start=learned",
    "tape:context=no-attention",
    "tape:context=no-mlp",
    "tape:clamp=1.5",
    "tape:form=vector",
    "tape:context=no-attention:form=vector",
    "tape:clamp=1.2:context=no-mlp:form=vector",
)
TAPE_HEADS = (
    "tape-heads",
    "tape-heads:start=fourier",
    "tape-heads:start=learned",
    "tape-heads:context=no-attention",
    "tape-heads:context=no-mlp",
    "tape-heads:clamp=2",
)
CONTEXTUAL = (*TAPE, *TAPE_HEADS)
# float32 rounds at 6e-8; tape-heads mixes heads in every layer, which lets rounding grow more.
SINGLE = {"tape": 1e-5, "tape-heads": 1e-4}
Turn = Callable[[Tensor], Tensor]


def form(name: str) -> str:
    """`name` without its options."""
    return name.split(":")[0]


def small_decoder(name: str, pe: PositionalEncoding | None = None) -> Decoder:
    """A float64 decoder for the encoding `name` (or `pe` in its place), unperturbed."""
    torch.manual_seed(0)
    decoder = Decoder(CONFIG, pe or build(name, SETTING)).double().eval()
    # Perturbed updates make e grow from layer to layer (a thousandfold in six where heads are mixed
    # and nothing clamps), and scores grow with its square. Queries, keys and values are scaled down
    # so far that attention does not saturate: there it would multiply the rounding itself.
    unclamped = form(name) == "tape-heads" and "no-mlp" not in name and "clamp" not in name
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for path, weight in decoder.named_parameters():
            if weight.ndim > 1 and not path.startswith("pe."):
                fan_in = 1 if path.startswith("embedding") else weight.shape[1]
                scale = (0.2 if unclamped else 0.5) if path.endswith("qkv.weight") else 1.0
                drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight.copy_(drawn * (scale / fan_in**0.5))
    return decoder


def perturbed(name: str, std: float = 0.4) -> Decoder:
    """With noise added to all that the encoding learns: W1, W2, psi; s, Wx, Wu, Wd."""
    decoder, generator = small_decoder(name), torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in decoder.pe.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(drawn, alpha=std)
    return decoder


def sequences(tokens: Tensor | None = None, **others: Any) -> Sequences:
    if tokens is None:
        generator = torch.Generator().manual_seed(5)
        tokens = torch.randint(3, VOCABULARY, (2, TOKENS), generator=generator)
    rows = len(tokens)
    return Sequences(tokens, torch.full((rows,), TOKENS), torch.arange(rows), **others)


@torch.no_grad()
def run(decoder: Decoder, seqs: Sequences) -> tuple[Tensor, list[Tensor]]:
    """Logits, and e as it enters each block."""
    states: list[Tensor] = []

    def watch(layer: int, name: str, value: Any) -> None:
        if name == "state":
            states.append(value.e)

    logits = decoder(replace(seqs, watch=watch))
    assert len(states) == NUM_LAYERS
    return logits, states


def change_start(decoder: Decoder, change: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `change` act on the initial state's e."""
    start: Callable[..., Any] = decoder.pe.start

    def changed(x: Tensor, index: Tensor, seqs: Sequences) -> Any:
        state = start(x, index, seqs)
        return getattr(type(state), "from_matrix", type(state))(change(state.e))

    monkeypatch.setattr(decoder.pe, "start", changed)


# ---- the group ---------------------------------------------------------------------------------


def orthogonal(heads: int, *, reflections: bool) -> Tensor:
    """Random R_f in O(2), [heads, F, 2, 2]; every other one a reflection, or none."""
    generator = torch.Generator().manual_seed(6)
    gaussian = torch.randn(heads, FREQUENCIES, 2, 2, generator=generator, dtype=torch.float64)
    turns: Tensor = torch.linalg.qr(gaussian).Q
    wanted = torch.ones(FREQUENCIES, dtype=torch.float64)
    if reflections:
        wanted[::2] = -1
    turns[..., 0] *= (torch.linalg.det(turns) * wanted)[..., None]
    assert torch.allclose(torch.linalg.det(turns), wanted.expand(heads, -1))
    return turns


def symmetry(name: str, heads: int = 1) -> Turn:
    """An element of the group as it acts on e; tape-heads has rotations only.

    TAPE's e = [[a, b], [-b, a]] is kept there as the number z = a + ib, and e R has that form again
    only when det R = 1: a reflection leads out of what the state can hold.
    """
    turns = orthogonal(heads, reflections=form(name) == "tape")

    def turn_matrix(e: Tensor) -> Tensor:
        """e -> e R_f on the columns (D = 2) of e [B, T, H or 1, L, D F]."""
        by_frequency = e.reshape(*e.shape[:-1], 2, FREQUENCIES)
        return torch.einsum("bthldf,hfdc->bthlcf", by_frequency, turns.to(e.dtype)).flatten(-2)

    def turn_number(e: Tensor) -> Tensor:
        """z -> z exp(i phi_f) for the angle of R_f, on e [..., 2F] = [real | imaginary]."""
        z = torch.complex(*e.double().chunk(2, -1))
        z = z * torch.complex(turns[..., 0, 0], turns[..., 0, 1])
        return torch.cat((z.real, z.imag), -1).to(e.dtype)

    return turn_matrix if form(name) == "tape" else turn_number


# ---- symmetries --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_perturbation_moves_the_output(name: str) -> None:
    """Or the other tests here would only test RoPE."""
    fresh, _ = run(small_decoder(name), sequences())
    moved, states = run(perturbed(name), sequences())
    assert error(moved, fresh) > 0.05
    assert all(error(after, before) > 0.05 for before, after in pairwise(states))


@pytest.mark.parametrize(
    ("name", "heads"),
    [*((name, heads) for name in TAPE for heads in (1, NUM_HEADS)), *((n, 1) for n in TAPE_HEADS)],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_equivariance(
    name: str, heads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tape never mixes heads, so even an R of its own for each head is a symmetry."""
    tolerance = 1e-12 if dtype == torch.float64 else SINGLE[form(name)]
    decoder = perturbed(name).to(dtype)
    logits, states = run(decoder, sequences())
    turn = symmetry(name, heads)
    change_start(decoder, turn, monkeypatch)
    turned_logits, turned_states = run(decoder, sequences())
    assert error(turned_logits, logits) < tolerance
    for turned, state in zip(turned_states, states, strict=True):
        assert error(turned, turn(state)) < tolerance
        # The turn is a large one, so that the states cannot agree by chance.
        assert error(turned, state.expand_as(turned)) > 0.1


def test_tape_heads_is_not_invariant_head_by_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """It mixes heads: turning each by itself is seen. Shows that the test above can fail."""
    decoder = perturbed("tape-heads")
    logits, _ = run(decoder, sequences())
    change_start(decoder, symmetry("tape-heads", NUM_HEADS), monkeypatch)
    assert error(run(decoder, sequences())[0], logits) > 1e-2


@pytest.mark.parametrize("context", ["full", "no-attention"])
def test_without_equivariance_the_invariance_fails(
    context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same model, with columns mixed."""
    name = f"tape:context={context}:form=non-equivariant"
    decoder = perturbed(name)
    logits, states = run(decoder, sequences())
    assert error(run(decoder, sequences(offset=3))[0], logits) > 1e-2
    turn = symmetry(name)
    change_start(decoder, turn, monkeypatch)
    turned_logits, turned_states = run(decoder, sequences())
    assert error(turned_logits, logits) > 1e-2
    assert error(turned_states[-1], turn(states[-1])) > 1e-2


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_shifts_are_kept_by_all_but_a_learned_start(name: str) -> None:
    decoder = perturbed(name)
    logits, states = run(decoder, sequences())
    shifted, shifted_states = run(decoder, sequences(offset=3))
    assert error(shifted_states[-1], states[-1]) > 0.1
    if "learned" in name:
        assert error(shifted, logits) > 1e-2
        return
    assert error(shifted, logits) < 1e-10
    assert error(run(decoder, sequences(offset=1000))[0], logits) < 1e-10


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_permutation_equivariance(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order is in the state and in the mask, nowhere else: permute them with the tokens and the
    logits are permuted. The causal mask has to move too, so attention is written out here."""
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()

    class Masked(Backend):
        def __call__(
            self, q: Tensor, k: Tensor, values: tuple[Tensor, ...], *others: Any, **options: Any
        ) -> tuple[Tensor, ...]:
            scores = torch.einsum("bthk,bihk->bhti", q, k) * HEAD_DIM**-0.5
            weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
            rows, _, heads, _ = q.shape
            return tuple(
                torch.einsum("bhti,bihv->bthv", weights, v.expand(rows, -1, heads, -1))
                for v in values
            )

    decoder = perturbed(name)
    expected, expected_states = run(decoder, sequences())
    decoder.attend_with(Masked())
    assert error(run(decoder, sequences())[0], expected) < 1e-12

    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(8))
    visible = visible[order][:, order]
    change_start(decoder, lambda e: e[:, order], monkeypatch)
    logits, states = run(decoder, sequences(sequences().tokens[:, order]))
    assert error(logits, expected[:, order]) < 1e-12
    for permuted, state in zip(states, expected_states, strict=True):
        assert error(permuted, state[:, order]) < 1e-12


# ---- the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ABLATIONS, *CLAMPED, "tape:clamp=1.4", "tape-heads:clamp=1.4"])
def test_what_starts_as_rope(name: str) -> None:
    """All but a vector, and what is clamped below the norm of a rotation, sqrt(2)."""
    rope = small_decoder(name, build("rope", SETTING))
    with torch.no_grad():
        off = error(small_decoder(name)(sequences()), rope(sequences()))
    assert off > 1e-4 if "vector" in name or "1.4" in name else off < 1e-12


@pytest.mark.parametrize("name", ["tape", "tape-heads", "tape:form=vector"])
def test_a_learned_start_turns_hardly(name: str) -> None:
    """The first state of every index is the identity plus N(0, 0.02)."""
    torch.manual_seed(0)
    table = build(f"{name}:start=learned", replace(SETTING, head_dim=64)).get_parameter("table")
    rows = table.detach() if table.ndim == 3 else table.detach()[:, None]
    identity = torch.zeros_like(rows)
    identity[:, 0, :32] = 1
    if rows.shape[1] == 2:
        identity[:, 1, 32:] = 1
    assert float((rows - identity).std()) == pytest.approx(0.02, rel=0.1)
    assert float((rows - identity).mean((0, 2)).abs().max()) < 0.002


@pytest.mark.parametrize("name", ["tape", "tape-heads"])
def test_a_learned_start_has_a_table_of_l1_rows_without_decay(name: str) -> None:
    decoder = perturbed(f"{name}:start=learned")
    decoder(sequences()).square().sum().backward()
    table = decoder.pe.get_parameter("table")
    assert table.grad is not None and len(table) == SETTING.max_length
    reached = table.grad.abs().flatten(1).amax(1) > 0
    assert bool(reached[:TOKENS].all()) and not bool(reached[TOKENS:].any())
    options = [o for p, o in decoder.pe.parameter_groups() if p is table]
    assert options == [{"weight_decay": 0.0}]
    for seqs in (sequences(torch.zeros(1, 53, dtype=torch.int64)), sequences(offset=13)):
        with pytest.raises(UsageError, match="table of 52 states"):
            decoder(seqs)


@pytest.mark.parametrize("start", ["fourier", "learned"])
@pytest.mark.parametrize("name", ["tape", "tape-heads"])
def test_flops_of_every_start(name: str, start: str) -> None:
    """A learned first e needs a gradient, so the first layer's product has one more."""
    decoder = perturbed(f"{name}:start={start}")
    parameters = list(decoder.parameters())
    formula = matmuls(decoder.config, decoder.pe, padded(2, TOKENS))
    assert sum(product.training for product in formula) == counted(
        lambda: torch.autograd.grad(decoder(sequences()).sum(), parameters)
    )


# ---- the clamp ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLAMPED)
def test_no_norm_is_above_the_clamp(name: str) -> None:
    """Some are at it and some below; without the clamp some are above."""
    clamp = dict(parse(name).encoding.parts[0].options)["clamp"]
    assert isinstance(clamp, float)

    def norms(name: str) -> Tensor:
        """||e||_F of the last state by frequency; z counts twice, as its matrix has it."""
        e = run(perturbed(name, 0.3), sequences())[1][-1]
        entries = e.reshape(*e.shape[:3], -1, FREQUENCIES)
        return entries.square().sum(-2).mul(2 if "heads" in name else 1).sqrt()

    held = norms(name)
    assert float(held.max()) <= clamp * (1 + 1e-12)
    assert 0.02 < float((held > clamp * (1 - 1e-9)).double().mean()) < 0.99
    assert float(norms(name.replace(f":clamp={clamp}", "")).max()) > 1.05 * clamp


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


# ---- options, and the formulas of a GPU --------------------------------------------------------


@pytest.mark.parametrize("name", ["tape", "tape-heads", *ABLATIONS, *CLAMPED])
def test_the_plain_formulas_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a GPU, where no backward is written by hand and one first e serves all heads."""

    def results() -> list[Tensor]:
        decoder = perturbed(name)
        logits = decoder(sequences())
        logits.square().sum().backward()
        return [logits.detach(), *(p.grad for p in decoder.parameters() if p.grad is not None)]

    expected = results()
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    for ours, theirs in zip(results(), expected, strict=True):
        assert error(ours, theirs) < 1e-10


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tape:context=no-mlp:width=12", "width=12 does nothing with context=no-mlp"),
        ("tape:context=no-mlp:form=non-equivariant", "context=no-mlp has none"),
        ("tape-heads:clamp=-0.5", "clamp must be above 0, or 0 for none, not -0.5"),
        ("tape:form=flat", "one of tensor, non-equivariant, vector"),
        ("tape-heads:form=vector", "unknown option of tape-heads 'form'"),
    ],
)
def test_refused_options(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(name, SETTING)


@pytest.mark.parametrize(
    ("form", "entries"), [("tensor", 2), ("non-equivariant", 4), ("vector", 1)]
)
@pytest.mark.parametrize("width", [4, 96])
def test_width_counts_parameters(form: str, entries: int, width: int) -> None:
    """B' is the width of psi, W1 and W2, in each layer but the last, and of nothing else."""
    pe = build(f"tape:form={form}:width={width}", SETTING)
    count = sum(p.numel() for p in pe.parameters())
    assert count == (NUM_LAYERS - 1) * (width * (HEAD_DIM + 1) + 2 * width * entries)
    # W2 = 0, and W1 uniform up to the root of what it adds up.
    assert not pe.get_parameter("layers.0.w2").any()
    drawn = build(f"tape:form={form}:width=999", SETTING).get_parameter("layers.0.w1")
    assert 0.9 < float(drawn.detach().abs().max()) * entries**0.5 <= 1
    heads = build(f"tape-heads:width={width}", SETTING)
    per_layer = NUM_HEADS + width * (HIDDEN + 2 * NUM_HEADS)
    assert sum(p.numel() for p in heads.parameters()) == (NUM_LAYERS - 1) * per_layer
    for name in ("tape", "tape-heads"):
        assert locate("encoding", name).declaration().options["width"].default == 48


@pytest.mark.parametrize("name", ["tape", "tape:form=vector", "tape-heads"])
def test_shares_learn_as_fast_as_row_sums(name: str) -> None:
    """The H x H matrix of the authors' code, of which the row sums act."""
    pe = build(f"{name}:context=no-mlp", SETTING)
    assert [n for n, _ in pe.named_parameters()] == [f"layers.{i}.s" for i in range(NUM_LAYERS - 1)]
    assert all(not p.any() and p.shape == (NUM_HEADS,) for p in pe.parameters())
    expected = {"weight_decay": 0.0, "lr_factor": float(NUM_HEADS)}
    assert [options for _, options in pe.parameter_groups()] == [expected] * (NUM_LAYERS - 1)


def test_what_attention_gathers() -> None:
    """v, both parts of a matrix or the one of a vector, and v alone where nothing is gathered."""
    needs = {name: build(name, SETTING).needs for name in ("tape", "tape-heads", *ABLATIONS)}
    assert needs["tape"].values == 3 and needs["tape-heads"].values == 2
    assert needs["tape:form=vector"].values == 2
    for name, need in needs.items():
        assert (need.values == 1) == ("no-attention" in name)
        assert need.query == (2 if "vector" in name else 1)
