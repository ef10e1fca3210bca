"""TAPE's symmetries, on networks whose position updates are large (else TAPE *is* RoPE).

The claim (paper, Eq. 4 and 5, and Proposition 1): turn the initial state by an orthogonal R and
all later states turn alike while the logits stay. A shift of all positions turns each frequency by
an angle of its own, so what matters is an independent R_f for each frequency, and that is tested.

Legend: B batch, T tokens, H heads, F frequencies, L = D = 2.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.backends.backend import Backend
from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.sequences import Sequences

NUM_LAYERS, HIDDEN, NUM_HEADS, HEAD_DIM, TOKENS, VOCABULARY = 6, 32, 4, 8, 40, 19
FREQUENCIES = HEAD_DIM // 2
# With all that may be taken from them or added and keeps the symmetry. The clamps are such that
# they act on most of e, and not on all.
TAPE = (
    "tape",
    "tape:context=no-attention",
    "tape:context=no-mlp",
    "tape:clamp=1.5",
    "tape:form=vector",
    "tape:context=no-attention:form=vector",
    "tape:clamp=1.2:context=no-mlp:form=vector",
)
TAPE_HEADS = (
    "tape-heads",
    "tape-heads:context=no-attention",
    "tape-heads:context=no-mlp",
    "tape-heads:clamp=2",
)
CONTEXTUAL = (*TAPE, *TAPE_HEADS)
# float32 rounds at 6e-8; tape-heads mixes heads in every layer, which lets rounding grow more.
SINGLE = {"tape": 1e-5, "tape-heads": 1e-4}
# Perturbed updates make e grow from layer to layer (a thousandfold in six where heads are mixed and
# nothing clamps), and scores grow with its square. Queries, keys and values are scaled down so far
# that attention does not saturate: there it would multiply the rounding itself by thousands,
# equivariant or not.
QKV_SCALE = dict.fromkeys(("tape-heads", "tape-heads:context=no-attention"), 0.2)
Turn = Callable[[Tensor], Tensor]

SETTING = Setting(
    num_layers=NUM_LAYERS,
    num_heads=NUM_HEADS,
    head_dim=HEAD_DIM,
    hidden_size=HIDDEN,
    trained_length=28,
    max_length=52,
    digit_ids=tuple(range(4, 14)),
    separator_ids=(14, 17),
    end_id=3,
)


def form(name: str) -> str:
    """`name` without its options."""
    return name.split(":")[0]


def small_decoder(name: str, pe: PositionalEncoding | None = None) -> Decoder:
    """A float64 decoder for the encoding `name` (`pe`, where it holds another one), unperturbed.

    Its weights are the same in every run: the encoding draws its own from torch's generator, the
    rest depends on `name` and the shapes only.
    """
    torch.manual_seed(0)
    config = DecoderConfig(VOCABULARY, NUM_LAYERS, HIDDEN, NUM_HEADS, HEAD_DIM, 2 * HIDDEN)
    decoder = Decoder(config, pe or build(name, SETTING)).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for path, weight in decoder.named_parameters():
            if weight.ndim > 1 and not path.startswith("pe."):
                fan_in = 1 if path.startswith("embedding") else weight.shape[1]
                scale = QKV_SCALE.get(name, 0.5) if path.endswith("qkv.weight") else 1.0
                drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight.copy_(drawn * (scale / fan_in**0.5))
    return decoder


def perturb(decoder: Decoder, std: float = 0.4) -> Decoder:
    """Add noise to all that the encoding learns: W1, W2, psi; s, Wx, Wu, Wd."""
    generator = torch.Generator().manual_seed(4)
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
            assert layer == len(states)
            states.append(value.e)

    watched = Sequences(seqs.tokens, seqs.final_length, seqs.key, seqs.offset, watch)
    logits = decoder(watched)
    assert len(states) == NUM_LAYERS
    return logits, states


def error(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def start_changed(decoder: Decoder, change: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
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


def turn_tape(turns: Tensor) -> Turn:
    """e -> e R_f on the columns (D = 2) of e [B, T, H or 1, L, D F]."""

    def turn(e: Tensor) -> Tensor:
        by_frequency = e.reshape(*e.shape[:-1], 2, FREQUENCIES)
        turned = torch.einsum("bthldf,hfdc->bthlcf", by_frequency, turns.to(e.dtype))
        return turned.flatten(-2)

    return turn


def turn_tape_heads(turns: Tensor) -> Turn:
    """z -> z exp(i phi_f) for the angle of R_f, on e [B, T, H or 1, 2F] = [real | imaginary].

    Rotations only. TAPE's e = [[a, b], [-b, a]] is kept as the number z = a + ib, and e R has that
    form again only when det R = 1: a reflection leads out of what the state can hold (the
    conjugate of z would reflect rows instead of columns, which is no symmetry of the model).
    """
    number = torch.complex(turns[..., 0, 0], turns[..., 0, 1])  # [heads, F]

    def turn(e: Tensor) -> Tensor:
        real, imaginary = e.double().chunk(2, -1)
        z = torch.complex(real, imaginary) * number
        return torch.cat((z.real, z.imag), -1).to(e.dtype)

    return turn


def symmetry(name: str, heads: int = 1) -> Turn:
    if form(name) == "tape":
        return turn_tape(orthogonal(heads, reflections=True))
    return turn_tape_heads(orthogonal(heads, reflections=False))


# ---- tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CONTEXTUAL if "vector" not in name])
def test_is_rope_at_initialization(name: str) -> None:
    rope = small_decoder(name, build("rope", SETTING))
    with torch.no_grad():
        expected = rope(sequences())
    logits, _ = run(small_decoder(name), sequences())
    assert error(logits, expected) < 1e-12


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_perturbation_moves_the_output(name: str) -> None:
    """Or every other test here would only test RoPE."""
    fresh, _ = run(small_decoder(name), sequences())
    moved, states = run(perturb(small_decoder(name)), sequences())
    assert error(moved, fresh) > 0.05
    assert all(error(after, before) > 0.05 for before, after in pairwise(states))


@pytest.mark.parametrize("name", TAPE)
@pytest.mark.parametrize("heads", [1, NUM_HEADS], ids=["one R", "an R for each head"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_tape_is_equivariant(
    name: str, heads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tape never mixes heads, so even an R of its own for each head is a symmetry."""
    tolerance = 1e-12 if dtype == torch.float64 else SINGLE["tape"]
    decoder = perturb(small_decoder(name)).to(dtype)
    logits, states = run(decoder, sequences())
    turn = symmetry(name, heads)
    start_changed(decoder, turn, monkeypatch)
    turned_logits, turned_states = run(decoder, sequences())
    assert error(turned_logits, logits) < tolerance
    for turned, state in zip(turned_states, states, strict=True):
        assert error(turned, turn(state)) < tolerance
        # The turn is a large one, so that the states cannot agree by chance.
        assert error(turned, state.expand_as(turned)) > 0.1


@pytest.mark.parametrize("name", TAPE_HEADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_tape_heads_is_equivariant(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under one rotation for each frequency; see turn_tape_heads for why no reflections."""
    tolerance = 1e-12 if dtype == torch.float64 else SINGLE["tape-heads"]
    decoder = perturb(small_decoder(name)).to(dtype)
    logits, states = run(decoder, sequences())
    turn = symmetry(name)
    start_changed(decoder, turn, monkeypatch)
    turned_logits, turned_states = run(decoder, sequences())
    assert error(turned_logits, logits) < tolerance
    for turned, state in zip(turned_states, states, strict=True):
        assert error(turned, turn(state)) < tolerance


def test_tape_heads_is_not_invariant_head_by_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """It mixes heads: turning each by itself must be seen. Shows that the test above can fail."""
    decoder = perturb(small_decoder("tape-heads"))
    logits, _ = run(decoder, sequences())
    start_changed(decoder, symmetry("tape-heads", NUM_HEADS), monkeypatch)
    assert error(run(decoder, sequences())[0], logits) > 1e-2


@pytest.mark.parametrize("shift", [3, 1000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_shift_changes_nothing(name: str, dtype: torch.dtype, shift: int) -> None:
    tolerance = 1e-10 if dtype == torch.float64 else SINGLE[form(name)]
    decoder = perturb(small_decoder(name)).to(dtype)
    logits, states = run(decoder, sequences())
    shifted, shifted_states = run(decoder, sequences(offset=shift))
    assert error(shifted, logits) < tolerance
    assert error(shifted_states[-1], states[-1]) > 0.1


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

    decoder = perturb(small_decoder(name))
    expected, expected_states = run(decoder, sequences())
    decoder.attend_with(Masked())
    assert error(run(decoder, sequences())[0], expected) < 1e-12

    order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(8))
    visible = visible[order][:, order]
    start_changed(decoder, lambda e: e[:, order], monkeypatch)
    logits, states = run(decoder, sequences(sequences().tokens[:, order]))
    assert error(logits, expected[:, order]) < 1e-12
    for permuted, state in zip(states, expected_states, strict=True):
        assert error(permuted, state[:, order]) < 1e-12


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_the_future_is_never_seen(name: str) -> None:
    decoder = perturb(small_decoder(name))
    seqs = sequences()
    logits, states = run(decoder, seqs)
    for changed in (TOKENS - 1, TOKENS // 2):
        tokens = seqs.tokens.clone()
        tokens[:, changed] = 3 + (tokens[:, changed] - 2) % (VOCABULARY - 3)
        other, other_states = run(decoder, sequences(tokens))
        assert torch.equal(other[:, :changed], logits[:, :changed])
        assert not torch.equal(other[:, changed:], logits[:, changed:])
        for ours, theirs in zip(other_states, states, strict=True):
            assert torch.equal(ours[:, :changed], theirs[:, :changed])
        # The edit does reach the state of its own token, from the first update on.
        assert not torch.equal(other_states[1][:, changed], states[1][:, changed])


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_prefix_gives_the_same_logits(name: str) -> None:
    """What decoding token by token would give is what one forward gives."""
    decoder = perturb(small_decoder(name))
    seqs = sequences()
    logits, _ = run(decoder, seqs)
    for length in (1, 2, 17, TOKENS - 1):
        prefix, _ = run(decoder, sequences(seqs.tokens[:, :length]))
        assert error(prefix, logits[:, :length]) < 1e-12


# ---- the control: the same model without equivariance must fail --------------------------------


@pytest.mark.parametrize("context", ["full", "no-attention"])
def test_without_equivariance_the_invariance_fails(
    context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"tape:context={context}:form=non-equivariant"
    rope = small_decoder(name, build("rope", SETTING))
    with torch.no_grad():
        expected = rope(sequences())
    assert error(run(small_decoder(name), sequences())[0], expected) < 1e-12

    decoder = perturb(small_decoder(name))
    logits, states = run(decoder, sequences())
    assert error(run(decoder, sequences(offset=3))[0], logits) > 1e-2
    turn = symmetry(name)
    start_changed(decoder, turn, monkeypatch)
    turned_logits, turned_states = run(decoder, sequences())
    assert error(turned_logits, logits) > 1e-2
    assert error(turned_states[-1], turn(states[-1])) > 1e-2
