"""Watching a forward: every encoding's states and weights, by layer, and who refuses to show them.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models import contract
from tape_arith.models.backends.sdpa import SDPA
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalLayer
from tape_arith.models.errors import UsageError
from tape_arith.models.names.locate import known_names
from tape_arith.models.sequences import Sequences

NAMES = [*known_names("encoding"), "rope+yarn", "tape+yarn", "abacus+fire", "abacus+tape"]
LAYERS = 3


class Heard:
    """What a watcher hears, in order, and beside it what each layer took and gave."""

    def __init__(self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[tuple[int, str]] = []
        self.states: list[Any] = []
        self.weights: list[Tensor] = []
        self.values: list[Tensor] = []
        self.heads: list[Tensor] = []
        for layer in decoder.pe.layers:
            assert isinstance(layer, PositionalLayer)
            monkeypatch.setattr(layer, "attend", self.between(layer.attend))

    def __call__(self, layer: int, what: str, value: Any) -> None:
        self.told.append((layer, what))
        (self.states if what == "state" else self.weights).append(value)

    def between(self, attend: Callable[..., tuple[Tensor, Any]]) -> Callable[..., Any]:
        def attended(x: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Any:
            heads, state = attend(x, q, k, v, *others)
            self.values.append(v)
            self.heads.append(heads)
            return heads, state

        return attended


@torch.no_grad()
def hear(name: str, monkeypatch: pytest.MonkeyPatch, seqs: Sequences | None = None) -> Heard:
    decoder = contract.decoder_for(name, num_layers=LAYERS)
    heard = Heard(decoder, monkeypatch)
    decoder(replace(seqs or contract.example_batch(), watch=heard, weights_too=True))
    return heard


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_of_every_encoding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One map a layer, after the layer's state; causal, rows that sum to 1 (stick-breaking too:
    what is left of the stick goes to the token itself); and with the values it gives the heads."""
    heard = hear(name, monkeypatch)
    assert heard.told == [(i, what) for i in range(LAYERS) for what in ("state", "weights")]
    rows, tokens = contract.example_batch().tokens.shape
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    for weights, v, heads in zip(heard.weights, heard.values, heard.heads, strict=True):
        assert weights.shape == (rows, v.shape[2], tokens, tokens)
        assert weights.dtype == torch.float64 and not weights.requires_grad
        assert bool((weights >= 0).all()) and bool((weights[..., future] == 0).all())
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
        gathered = torch.einsum("bhti,bihk->bthk", weights, v)
        torch.testing.assert_close(gathered, heads, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_watching_changes_nothing(name: str) -> None:
    decoder, seqs = contract.decoder_for(name), contract.example_batch()
    with torch.no_grad():
        watched = decoder(replace(seqs, watch=lambda *_: None, weights_too=True))
        assert torch.equal(watched, decoder(seqs))


def test_the_last_block_that_computes_a_few_tokens_shows_all_its_weights() -> None:
    decoder, seqs = contract.decoder_for("tape"), contract.example_batch()
    shapes: list[torch.Size] = []

    def watch(layer: int, what: str, value: Any) -> None:
        if what == "weights":
            shapes.append(value.shape)

    with torch.no_grad():
        decoder(replace(seqs, watch=watch), torch.tensor([3, 4]))
    rows, tokens = seqs.tokens.shape
    assert shapes == [(rows, 2, tokens, tokens)] * LAYERS


def test_packed_sequences_show_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seqs = contract.example_batch(rows=1)
    alone = hear("tape", monkeypatch, seqs)
    twice = torch.cat((seqs.tokens, seqs.tokens), 1)
    length = seqs.tokens.shape[1]
    starts = torch.tensor([0, length, 2 * length], dtype=torch.int32)
    both = (seqs.final_length.repeat(2), seqs.key.repeat(2))
    packed = Sequences(twice, *both, starts=starts, longest=length)
    for ours, theirs in zip(hear("tape", monkeypatch, packed).weights, alone.weights, strict=True):
        torch.testing.assert_close(ours, theirs.expand(2, -1, -1, -1))


def test_a_backend_that_shows_nothing_says_so() -> None:
    """But a state can be watched under every backend: training does."""
    decoder, seqs = contract.decoder_for("rope"), contract.example_batch()
    decoder.attend_with(SDPA())
    told: list[tuple[int, str]] = []
    watched = replace(seqs, watch=lambda layer, what, _: told.append((layer, what)))
    with torch.no_grad():
        decoder(watched)
    assert told == [(i, "state") for i in range(LAYERS)]
    with pytest.raises(UsageError, match=r"'sdpa' never shows its weights: .* 'eager'"):
        decoder(replace(watched, weights_too=True))
    with torch.no_grad():
        decoder(replace(seqs, weights_too=True))  # nobody watches


# ---- inner products of positional states -------------------------------------------------------


def matrices(name: str, state: Any) -> tuple[Tensor, Tensor]:
    """e of each token as queries and as keys meet it, [B, T, H, F, 2, 2], written out."""
    if name == "pope":
        real, imaginary = state
        e = [[real, imaginary], [-imaginary, real]]
    elif name == "tape-heads":
        real, imaginary = state.e.chunk(2, -1)
        e = [[real, imaginary], [-imaginary, real]]
    elif name == "xpos":
        return matrices("rope", state.query)[0], matrices("rope", state.key)[1]
    else:
        (first, last), (lower, upper) = (part.chunk(2, -1) for part in state)
        e = [[first, upper], [lower, last]]
    made = torch.stack([torch.stack(row, -1) for row in e], -2)
    return made, made


POSITIONAL = (
    "rope",
    "p-rope",
    "rope-partial",
    "rand-rope",
    "xpos",
    "pope",
    "bipe",
    "tape",
    "tape-heads",
    "tape:start=learned",
    "tape:start=fourier",
    "tape+yarn",
)


@pytest.mark.parametrize("name", POSITIONAL)
def test_inner_products_are_traces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """sum_f tr(e_t e_i^T), term by term, of states that every layer but the first has rewritten."""
    heard = hear(name, monkeypatch)
    pe = contract.decoder_for(name, num_layers=LAYERS).pe
    for state in heard.states:
        ours = pe.inner_products(state)
        assert ours is not None
        queries, keys = matrices(name.split(":")[0].split("+")[0], state)
        rows, tokens, heads = queries.shape[:3]
        assert ours.shape == (rows, heads, tokens, tokens)
        for t, i in ((0, 0), (5, 2), (19, 18), (19, 0)):
            for b in range(rows):
                for h in range(heads):
                    products = (queries[b, t, h] @ keys[b, i, h].transpose(-1, -2)).diagonal(
                        dim1=-2, dim2=-1
                    )
                    assert float(ours[b, h, t, i]) == pytest.approx(float(products.sum()))


def test_of_rope_they_are_sums_of_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = hear("rope", monkeypatch).states
    pe = contract.decoder_for("rope").pe
    found = pe.inner_products(first)
    assert found is not None
    theta = 10000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    assert float(found[0, 0, 17, 4]) == pytest.approx(float(2 * (13 * theta).cos().sum()))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in POSITIONAL])
def test_who_has_no_positional_state_says_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = hear(name, monkeypatch)
    found = [contract.decoder_for(name).pe.inner_products(state) for state in heard.states]
    joined = name.endswith(("+tape", "+yarn"))
    assert all((products is not None) == joined for products in found)
