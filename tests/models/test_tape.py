"""TAPE in both forms: its symmetries, how it starts, and the formulas of a GPU.

The claim (paper, Eq. 4 and 5, and Proposition 1): turn the initial state by an orthogonal R and
all later states turn alike while the logits stay. A shift of all positions turns each frequency by
an angle of its own, so what matters is an independent R_f for each frequency. The networks have
large position updates: at initialization TAPE *is* RoPE.

B batch, T tokens, H heads, F frequencies, L = D = 2.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tape_arith.arith.contracts import examples
from tape_arith.arith.contracts.examples import example_batch, forward
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders import build as decoders
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring.score import sequences
from tape_arith.models.decoder import Decoder
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import build, error, setting
from tests.helpers.small_training import perturbed, small
from tests.models.test_oracles import ABLATIONS, CLAMPED

NUM_LAYERS, NUM_HEADS, FREQUENCIES = 4, 2, 4
# With all that may be taken from them or added and keeps the symmetry. The clamps are such that
# they act on most of e, and not on all.
TAPE = (
    *("tape", "tape:start=fourier", "tape:start=learned", "tape:context=no-attention"),
    *("tape:context=no-mlp", "tape:clamp=1.5", "tape:context=no-attention:form=vector"),
    "tape:clamp=1.2:context=no-mlp:form=vector",
)
TAPE_HEADS = (
    *("tape-heads", "tape-heads:start=fourier", "tape-heads:start=learned"),
    *("tape-heads:context=no-attention", "tape-heads:context=no-mlp", "tape-heads:clamp=2"),
)
Turn = Callable[[Tensor], Tensor]


def decoder_for(name: str) -> Decoder:
    return examples.decoder_for(name, num_layers=NUM_LAYERS)


def at_start(name: str) -> Decoder:
    """The decoder of `rope` with another encoding, as it is before training."""
    decoder = decoder_for("rope")
    torch.manual_seed(0)
    decoder.pe = build(name, decoder.pe.setting).double().eval()
    return decoder


@torch.no_grad()
def run(decoder: Decoder) -> tuple[Tensor, list[Tensor]]:
    """Logits, and e as it enters each block."""
    states: list[Tensor] = []

    def watch(layer: int, name: str, value: Any) -> None:
        if name == "state":
            states.append(value.e)

    logits = decoder(replace(example_batch(), watch=watch))
    assert len(states) == NUM_LAYERS
    return logits, states


def change_start(decoder: Decoder, change: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `change` act on the initial state's e."""
    start: Callable[..., Any] = decoder.pe.start

    def changed(x: Tensor, index: Tensor, seqs: Sequences) -> Any:
        state = start(x, index, seqs)
        return state.from_matrix(change(state.e))

    monkeypatch.setattr(decoder.pe, "start", changed)


def symmetry(name: str, heads: int = 1) -> Turn:
    """An element of the group as it acts on e: of O(2) for each frequency, a reflection for every
    other one.

    tape-heads has rotations only: TAPE's e = [[a, b], [-b, a]] is kept there as the number
    z = a + ib, and e R has that form again only if det R = 1.
    """
    is_tape = name.split(":")[0] == "tape"
    generator = torch.Generator().manual_seed(6)
    gaussian = torch.randn(heads, FREQUENCIES, 2, 2, generator=generator, dtype=torch.float64)
    turns: Tensor = torch.linalg.qr(gaussian).Q
    determinant = torch.ones(FREQUENCIES, dtype=torch.float64)
    if is_tape:
        determinant[::2] = -1
    turns[..., 0] *= (torch.linalg.det(turns) * determinant)[..., None]

    def turn_matrix(e: Tensor) -> Tensor:
        """e -> e R_f on the columns (D = 2) of e [B, T, H or 1, L, D F]."""
        by_frequency = e.reshape(*e.shape[:-1], 2, FREQUENCIES)
        return torch.einsum("bthldf,hfdc->bthlcf", by_frequency, turns.to(e.dtype)).flatten(-2)

    def turn_number(e: Tensor) -> Tensor:
        """z -> z exp(i phi_f) for the angle of R_f, on e [..., 2F] = [real | imaginary]."""
        z = torch.complex(*e.double().chunk(2, -1))
        z = z * torch.complex(turns[..., 0, 0], turns[..., 0, 1])
        return torch.cat((z.real, z.imag), -1).to(e.dtype)

    return turn_matrix if is_tape else turn_number


@pytest.mark.parametrize(
    ("name", "heads", "dtype"),
    [
        *((name, heads, torch.float64) for name in TAPE for heads in (1, NUM_HEADS)),
        *((name, 1, torch.float64) for name in TAPE_HEADS),
        *((name, 1, torch.float32) for name in ("tape", "tape-heads")),
        # The controls, which mix heads or columns.
        ("tape-heads", NUM_HEADS, torch.float64),
        ("tape:form=non-equivariant", 1, torch.float64),
        ("tape:context=no-attention:form=non-equivariant", 1, torch.float64),
    ],
)
def test_equivariance(
    name: str, heads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tape never mixes heads, so even an R of its own for each head is a symmetry."""
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    decoder = decoder_for(name).to(dtype)
    logits, states = run(decoder)
    # Else these tests would only test RoPE.
    assert error(logits, run(at_start(name))[0]) > 0.03
    turn = symmetry(name, heads)
    change_start(decoder, turn, monkeypatch)
    turned_logits, turned_states = run(decoder)
    if "non-equivariant" in name or (name, heads) == ("tape-heads", NUM_HEADS):
        assert error(turned_logits, logits) > 1e-2
        return
    assert error(turned_logits, logits) < tolerance
    for turned, state in zip(turned_states, states, strict=True):
        assert error(turned, turn(state)) < tolerance
        # The turn is a large one, so that the states cannot agree by chance.
        assert error(turned, state.expand_as(turned)) > 0.1


@pytest.mark.parametrize("name", [*ABLATIONS, *CLAMPED, "tape:clamp=1.4", "tape-heads:clamp=1.4"])
def test_what_starts_as_rope(name: str) -> None:
    """All but a vector, and what is clamped below the norm of a rotation, sqrt(2)."""
    difference = error(run(at_start(name))[0], forward(decoder_for("rope"), example_batch()))
    assert difference > 1e-4 if "vector" in name or "1.4" in name else difference < 1e-12


@pytest.mark.parametrize("name", ["tape", "tape-heads", "tape:form=vector"])
def test_a_learned_start(name: str) -> None:
    """The first state of each of L1 indices is the identity plus N(0, 0.02); no weight decay."""
    torch.manual_seed(0)
    pe = build(f"{name}:start=learned", setting(head_dim=64))
    table = pe.get_parameter("table")
    rows = table.detach() if table.ndim == 3 else table.detach()[:, None]
    identity = torch.zeros_like(rows)
    identity[:, 0, :32] = 1
    if rows.shape[1] == 2:
        identity[:, 1, 32:] = 1
    assert len(table) == 52
    assert float((rows - identity).std()) == pytest.approx(0.02, rel=0.1)
    assert float((rows - identity).mean((0, 2)).abs().max()) < 0.002
    assert [o for p, o in pe.parameter_groups() if p is table] == [{"weight_decay": 0.0}]
    decoder = examples.decoder_for(f"{name}:start=learned", max_length=52)
    for seqs in (example_batch(53), replace(example_batch(20), offset=33)):
        with pytest.raises(UsageError, match="52 states"):
            decoder(seqs)


PLAIN = ["nope", "rope", "repo", "selective-rope", "tape", "tape-heads", *ABLATIONS, *CLAMPED]


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_formulas_say_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a GPU, where no backward is written by hand and one first e serves all heads."""

    def results() -> list[Tensor]:
        decoder = decoder_for(name)
        logits = decoder(example_batch())
        logits.square().sum().backward()
        return [logits.detach(), *(p.grad for p in decoder.parameters() if p.grad is not None)]

    expected = results()
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    for plain, by_hand in zip(results(), expected, strict=True):
        assert error(plain, by_hand) < 1e-10


def test_shares_learn_as_fast_as_row_sums() -> None:
    """The H x H matrix of the authors' code, of which the row sums act."""
    expected = {"weight_decay": 0.0, "lr_factor": 2.0}
    for name in ("tape:context=no-mlp", "tape-heads:context=no-mlp"):
        groups = build(name, setting()).parameter_groups()
        assert [options for _, options in groups] == [expected] * (setting().num_layers - 1)


def test_what_attention_gathers() -> None:
    """v, both parts of a matrix or the one of a vector, and v alone if nothing is gathered."""
    needs = {name: build(name, setting()).needs for name in ("tape", "tape-heads", *ABLATIONS)}
    assert needs["tape"].values == 3 and needs["tape-heads"].values == 2
    assert needs["tape:form=vector"].values == 2
    for name, need in needs.items():
        assert (need.values == 1) == ("no-attention" in name)
        assert need.query == (2 if "vector" in name else 1)


def test_the_norm_grows_with_weights_far_from_the_start_and_clamp_bounds_it() -> None:
    """The numbers of the docstring: 7e7 after 16 applied layers without a bound."""
    bucket = Bucket("addition", 3, 0, "evaluation")
    seqs = sequences(pad(bucket.problems(0, 32), bucket.keys(0, 32), np.arange(32)), "cpu")
    config = small(num_layers=4, loops=4, trained_digits=3, tested_digits=6)
    norms = {}
    for name in ("tape", "tape:clamp=2"):
        states: list[Any] = []
        decoder = perturbed(decoders.decoder_for(config, parse(name), 0), 0.4).eval()

        def watch(layer: int, kind: str, value: Any, states: list[Any] = states) -> None:
            states.extend([value] if kind == "state" else [])

        with torch.no_grad():
            decoder(replace(seqs, watch=watch))
        norms[name] = float(decoder.pe.measures(states[0], states[-1])["norm"].mean())
    assert len(states) == 16 and norms["tape"] > 1e6 and 1.4 < norms["tape:clamp=2"] <= 2
