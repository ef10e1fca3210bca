"""A watched forward shows the states and weights of every encoding, by layer.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.contracts import examples
from tape_arith.arith.registry.locate import known_names
from tape_arith.models.backends import SDPA
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalLayer
from tape_arith.models.sequences import Sequences

POSITIONAL = (
    *("rope", "p-rope", "rope-partial", "rand-rope", "xpos", "pope", "bipe", "tape", "tape-heads"),
    *("tape:start=learned", "tape:start=fourier", "tape+yarn", "hybrid"),
)
NAMES = [*dict.fromkeys([*known_names("encoding"), *POSITIONAL, "abacus+fire", "abacus+tape"])]
LAYERS = 3


class Recorder:
    """Keeps what a watcher is shown, in order, and what each layer took and gave."""

    def __init__(self, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[int, str]] = []
        self.values: dict[str, list[Any]] = {"state": [], "weights": [], "v": [], "heads": []}
        for layer in decoder.pe.layers:
            assert isinstance(layer, PositionalLayer)
            monkeypatch.setattr(layer, "attend", partial(self.attend, layer.attend))
            monkeypatch.setattr(layer, "attention", partial(self.attention, layer.attention))

    def __call__(self, layer: int, kind: str, value: Any) -> None:
        self.events.append((layer, kind))
        self.values[kind].append(value)

    def attend(self, attend: Any, x: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        self.values["v"].append(v)
        heads, state = attend(x, q, k, v, *rest)
        self.values["heads"].append(heads)
        return heads, state

    def attention(
        self, attention: Any, q: Tensor, k: Tensor, values: Any, *rest: Any, **how: Any
    ) -> Any:
        self.values["v"][-1] = values[0]  # canon's are not those of the block
        return attention(q, k, values, *rest, **how)


@torch.no_grad()
def watched(name: str, monkeypatch: pytest.MonkeyPatch, seqs: Sequences) -> Recorder:
    decoder = examples.decoder_for(name, num_layers=LAYERS)
    expected = decoder(seqs)
    recorder = Recorder(decoder, monkeypatch)
    assert torch.equal(decoder(replace(seqs, watch=recorder)), expected)
    return recorder


def matrices(name: str, state: Any) -> tuple[Tensor, Tensor]:
    """e of each token as queries and as keys meet it, [B, T, H, F, 2, 2], written out."""
    if name == "xpos":
        return matrices("rope", state.query)[0], matrices("rope", state.key)[1]
    if name in ("pope", "tape-heads"):
        real, imaginary = state if name == "pope" else state.e.chunk(2, -1)
        e = [[real, imaginary], [-imaginary, real]]
    else:
        (first, last), (lower, upper) = (part.chunk(2, -1) for part in state)
        e = [[first, upper], [lower, last]]
    both = torch.stack([torch.stack(row, -1) for row in e], -2)
    return both, both


@pytest.mark.parametrize("name", NAMES)
def test_states_and_weights_of_every_encoding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One map a layer, after the layer's state; causal, rows that sum to 1 (stick-breaking too:
    what is left of the stick goes to the token itself); and with the values it gives the heads.

    Inner products of states are sum_f tr(e_t e_i^T), or None without a positional state.
    """
    seqs = examples.example_batch()
    recorder = watched(name, monkeypatch, seqs)
    assert recorder.events == [(i, kind) for i in range(LAYERS) for kind in ("state", "weights")]
    rows, tokens = seqs.tokens.shape
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    maps = zip(*(recorder.values[kind] for kind in ("weights", "v", "heads")), strict=True)
    for weights, v, heads in maps:
        assert weights.shape == (rows, v.shape[2], tokens, tokens)
        assert weights.dtype == torch.float64 and not weights.requires_grad
        assert bool((weights >= 0).all()) and bool((weights[..., future] == 0).all())
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
        torch.testing.assert_close(torch.einsum("bhti,bihk->bthk", weights, v), heads)
    pe, last = examples.decoder_for(name).pe, name.split("+")[0 if "yarn" in name else -1]
    for state in recorder.values["state"]:
        products = pe.inner_products(state)
        if last not in POSITIONAL:
            assert products is None
            continue
        queries, keys = matrices(last.split(":")[0], state)
        expected = torch.einsum("bthfxy,bihfxy->bhti", queries, keys)
        torch.testing.assert_close(products, expected)


def test_packed_sequences_show_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seqs = examples.example_batch(rows=1)
    alone = watched("tape", monkeypatch, seqs)
    twice, length = torch.cat((seqs.tokens, seqs.tokens), 1), seqs.tokens.shape[1]
    starts = torch.tensor([0, length, 2 * length], dtype=torch.int32)
    both = (seqs.final_length.repeat(2), seqs.key.repeat(2))
    packed = watched("tape", monkeypatch, Sequences(twice, *both, starts=starts, longest=length))
    for actual, expected in zip(packed.values["weights"], alone.values["weights"], strict=True):
        torch.testing.assert_close(actual, expected.expand(2, -1, -1, -1))


def test_a_state_is_watched_under_every_backend() -> None:
    decoder, seqs = examples.decoder_for("rope"), examples.example_batch()
    seqs = replace(seqs, attention=SDPA())
    events: list[tuple[int, str]] = []
    with torch.no_grad():
        decoder(replace(seqs, watch=lambda layer, kind, _: events.append((layer, kind))))
    assert events == [(i, "state") for i in range(LAYERS)]
