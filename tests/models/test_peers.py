"""Encodings that other packages have too: equal to transformers and x-transformers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.encodings.cope import CoPELayer
from tape_arith.models.encodings.t5 import T5
from tape_arith.models.families.rotary import rotate
from tests.helpers.small_decoders import error, sequences, setting
from tests.models.test_extrapolations import SIZES, turned

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def bias_of(pe: PositionalEncoding, tokens: int) -> Tensor:
    """The bias that `pe` adds to scores: [H, T, T]."""
    seqs = sequences([tokens], length=tokens)
    bias: Tensor = pe.start(torch.zeros(1, tokens, 24), pe.indices(seqs), seqs).bias
    return bias[0].detach()


def test_t5_is_that_of_transformers() -> None:
    modeling: Any = pytest.importorskip("transformers.models.t5.modeling_t5")
    configuration: Any = pytest.importorskip("transformers.models.t5.configuration_t5")
    pe = build("t5", setting(num_heads=4))
    assert isinstance(pe, T5)
    config = configuration.T5Config(d_model=32, d_kv=8, num_heads=4, is_decoder=True)
    peer = modeling.T5Attention(config, has_relative_attention_bias=True)
    peer.relative_attention_bias.weight.data = pe.table.data
    assert torch.equal(bias_of(pe, 150), peer.compute_bias(150, 150)[0].detach())


@pytest.mark.parametrize("num_heads", [4, 12, 20])
def test_alibi_is_that_of_x_transformers(num_heads: int) -> None:
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    bias = bias_of(build("alibi", setting(num_heads=num_heads)), 30).tril()
    peer = package.AlibiPositionalBias(num_heads)(30, 30).tril()
    assert torch.allclose(bias, peer.expand_as(bias), rtol=1e-6)


@pytest.mark.parametrize("positions", [64, 7])
def test_cope_is_that_of_x_transformers(positions: int) -> None:
    """Theirs gives what is added to scores that are scaled and masked already."""
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    peer, layer = package.CoPE(dim=8, heads=2, max_pos=positions), CoPELayer(positions, 8)
    with torch.no_grad():
        peer.pos_emb.copy_(layer.table.normal_())
    x, (q, k) = torch.zeros(3, 40, 16), torch.randn(2, 3, 40, 2, 8)
    scores = torch.einsum("bthk,bihk->bhti", q, k) / 8**0.5
    future = torch.ones(40, 40, dtype=torch.bool).triu(1)
    masked = scores.masked_fill(future, -torch.finfo(torch.float32).max)
    expected = scores + peer(q.transpose(1, 2), masked)
    actual = layer.scores(x, q, k, ())
    torch.testing.assert_close(actual.tril(), expected.tril(), rtol=1e-5, atol=1e-5)


def interleaved(x: Tensor) -> Tensor:
    """Lay halves (f, f + F) as neighbours (2f, 2f + 1), which is how x-transformers pairs."""
    return torch.stack(x.chunk(2, -1), -1).flatten(-2)


def test_xpos_is_that_of_x_transformers() -> None:
    """Scores; single rotations differ by the center, which cancels."""
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    module = package.RotaryEmbedding(64, use_xpos=True, scale_base=62)
    q, k = torch.randn(2, 1, 2, 244, 64, generator=torch.Generator().manual_seed(3))
    freqs, scale = module.forward_from_seq_len(244)
    peer_q = package.apply_rotary_pos_emb(interleaved(q), freqs, scale)
    peer_k = package.apply_rotary_pos_emb(interleaved(k), freqs, scale**-1)
    expected = torch.einsum("bhtk,bhik->bhti", peer_q, peer_k)

    pe = build("xpos", setting(head_dim=64, trained_length=124, max_length=244)).eval()
    seqs = sequences([244], length=244)
    by = pe.start(torch.zeros(1, 244, 24), pe.indices(seqs), seqs)
    turned_q, turned_k = rotate(q.transpose(1, 2), by.query), rotate(k.transpose(1, 2), by.key)
    actual = torch.einsum("bthk,bihk->bhti", turned_q, turned_k)
    seen = torch.ones(244, 244, dtype=torch.bool).tril()
    assert error(actual[..., seen], expected[..., seen]) < 1e-4


@pytest.mark.parametrize(("head_dim", "trained", "longest"), SIZES)
def test_rescalings_are_those_of_transformers(head_dim: int, trained: int, longest: int) -> None:
    utils: Any = pytest.importorskip("transformers.modeling_rope_utils")
    llama: Any = pytest.importorskip("transformers.models.llama.configuration_llama")
    sizes = setting(head_dim=head_dim, trained_length=trained, max_length=longest)
    s = longest / trained
    for name, kind, options in (
        ("rope+pi", "linear", {"factor": s}),
        ("rope+ntk", "dynamic", {"factor": 1.0}),
        ("rope+ntk-dynamic", "dynamic", {"factor": s}),
        ("rope+yarn", "yarn", {"factor": s, "original_max_position_embeddings": trained}),
        ("p-rope", "proportional", {"partial_rotary_factor": 0.75}),
        ("p-rope:p=0.5+pi", "proportional", {"partial_rotary_factor": 0.5, "factor": s}),
    ):
        config = llama.LlamaConfig(
            hidden_size=2 * head_dim,
            num_attention_heads=2,
            head_dim=head_dim,
            max_position_embeddings=trained,
            rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **options},
        )
        length = longest if kind == "dynamic" else None
        compute = utils.ROPE_INIT_FUNCTIONS[kind]
        peer, magnitude = compute(config, torch.device("cpu"), seq_len=length)
        theta, amplitude = turned(name, sizes, longest)
        assert bool(((theta - peer.double()).abs() <= 1e-5 * peer).all()), name
        assert float((amplitude - magnitude).abs().max()) < 1e-6, name
