"""Relative biases and rotations: edges of their formulas, other packages, and refused options.

Legend: B batch, T tokens, H heads, K head dim.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.alibi import alibi_slopes
from tape_arith.models.encodings.t5 import T5, first_distances
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import rotate
from tape_arith.models.sequences import Sequences
from tests.helpers import small_decoders
from tests.helpers.small_decoders import error


def setting(num_heads: int = 4, head_dim: int = 8) -> Setting:
    return small_decoders.setting(
        num_layers=3, num_heads=num_heads, head_dim=head_dim, hidden_size=16
    )


def bias_of(pe: PositionalEncoding, index: list[int], dtype: torch.dtype = torch.float64) -> Tensor:
    """What `pe` adds to the scores of tokens numbered by `index`: [H, T, T]."""
    tokens = torch.zeros(1, len(index), dtype=torch.int64)
    seqs = Sequences(tokens, torch.tensor([len(index)]), torch.tensor([0]))
    x = torch.zeros(1, len(index), 16, dtype=dtype)
    bias: Tensor = pe.start(x, torch.tensor([index]), seqs).bias
    assert bias.shape == (1, pe.setting.num_heads, len(index), len(index))
    return bias[0].detach()


def at_distance(pe: PositionalEncoding, distance: int) -> list[float]:
    """What each head adds to the score of a key so far behind."""
    return bias_of(pe, [5, 5 + distance])[:, 1, 0].tolist()


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, [0.5 * h for h in range(1, 17)]),
    ],
)
def test_slopes_of_alibi(num_heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(num_heads) == pytest.approx([2.0**-e for e in exponents], rel=1e-14)
    # Less for a key that lies farther behind: the sign is right, and no head is left out.
    biases = at_distance(build("alibi", setting(num_heads)), 3)
    assert biases == pytest.approx([-3 * 2.0**-e for e in exponents], rel=1e-14)


@pytest.mark.parametrize("max_distance", [128, 52, 244, 17])
def test_buckets_of_t5(max_distance: int) -> None:
    """All look back: with the bidirectional default of published code 16 of them would be left."""
    pe = build(f"t5:max_distance={max_distance}", setting())
    assert isinstance(pe, T5) and len(first_distances(max_distance)) == 32
    for distance, bucket in enumerate(pe.buckets(torch.arange(400.0)).tolist()):
        expected = distance
        if distance >= 16:
            # The small number is for logarithms whose ratio is whole but for rounding.
            steps = 16 * math.log(distance / 16) / math.log(max_distance / 16) + 1e-12
            expected = min(16 + math.floor(steps), 31)
        assert bucket == expected, distance


def test_sandwich_falls_with_the_distance() -> None:
    bias = bias_of(build("sandwich", setting()), list(range(200)))
    assert bool((bias.diagonal(dim1=1, dim2=2) == 0).all())
    assert bool((bias[:, 100, 90:100].diff() > 0).all())
    # The first head falls the fastest.
    assert bias[0, 9, 0] / bias[3, 9, 0] == pytest.approx(4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t5:max_distance=16", "t5: max_distance must be 17 or more, not 16"),
        ("hard-alibi:windowed=5", r"hard-alibi: windowed must be 1 to 4 \(heads\), not 5"),
        ("sandwich:width=7", "sandwich: width must be even and 2 or more, not 7"),
        ("shaw:kmax=0", "shaw: kmax must be 1 or more, not 0"),
        ("fire:width=0", "fire: width must be 1 or more, not 0"),
        ("fire:init_l=-1", "fire: init_l must be more than 0, not -1"),
        ("cope:positions=1", "cope: positions must be 2 or more, not 1"),
        ("path:rank=0", "path: rank must be 1 or more, not 0"),
        ("dape:width=0", "dape: width must be 1 or more, not 0"),
        ("dape:base=rope", "alibi"),
        ("rope-partial:fraction=1.5", "fraction must be in"),
        ("p-rope:p=0.01", "keep a frequency"),
        ("xpos:scale_base=0", "scale_base must be more than 0"),
        ("selective-rope:rank=0", "rank must be 1 or more"),
        ("abacus:k=-1", "abacus: k must be 0 or more, not -1"),
        ("coupling:s=0", "coupling: s must be 1 or more, not 0"),
        ("bipe:rows=0", "bipe: rows must be 1 or more, not 0"),
        ("bipe:k=-1", "bipe: k must be 0 or more, not -1"),
        ("learned:rows=51", r"rows=51 is less than .* 52 tokens; choose rows >= 52"),
        ("learned-offset:rows=51", r"rows=51 is less than .* 52 tokens; choose rows >= 52"),
    ],
)
def test_refused_options(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build(name, setting())
    assert "\n" not in str(caught.value)


def test_odd_sizes_are_refused() -> None:
    for name in ("rope", "rope-partial", "p-rope", "xpos", "pope", "selective-rope", "tape"):
        with pytest.raises(UsageError, match="even head_dim"):
            build(name, setting(head_dim=7))
    with pytest.raises(UsageError, match="even hidden_size, not 15"):
        build("sinusoidal", small_decoders.setting(hidden_size=15))


def test_the_center_of_xpos_is_not_the_middle_of_the_present_length() -> None:
    """A key once stored must fit later queries: the first tokens' rotations never change."""
    pe, keys = build("xpos", setting()).double(), []
    for tokens in (10, 20):
        seqs = small_decoders.sequences([tokens], length=tokens)
        x = torch.zeros(1, tokens, 16, dtype=torch.float64)
        keys.append(pe.start(x, pe.indices(seqs), seqs).key.diagonal[:, :10])
    assert torch.equal(*keys)


# ---- other packages ----------------------------------------------------------------------------

quiet = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@quiet
def test_t5_is_that_of_transformers_and_x_transformers() -> None:
    modeling: Any = pytest.importorskip("transformers.models.t5.modeling_t5")
    configuration: Any = pytest.importorskip("transformers.models.t5.configuration_t5")
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    pe = build("t5", setting())
    assert isinstance(pe, T5)
    config = configuration.T5Config(d_model=32, d_kv=8, num_heads=4, is_decoder=True)
    theirs = modeling.T5Attention(config, has_relative_attention_bias=True)
    theirs.relative_attention_bias.weight.data = pe.table.data
    ours = bias_of(pe, list(range(150)), torch.float32)
    assert torch.equal(ours, theirs.compute_bias(150, 150)[0].detach())
    other = package.RelativePositionBias(scale=1.0, causal=True, heads=4)
    other.relative_attention_bias.weight.data = pe.table.data
    assert torch.equal(ours.tril(), other(150, 150).detach().tril())


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("num_heads", [4, 12, 20])
def test_alibi_is_that_of_transformers_and_x_transformers(num_heads: int) -> None:
    """The former's is a number a key, which differs by one of each row."""
    modeling: Any = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    theirs = modeling.build_alibi_tensor(torch.ones(1, 30), num_heads, torch.float64)
    ours = bias_of(build("alibi", setting(num_heads)), list(range(30)))
    difference = (theirs.view(num_heads, 1, 30) - ours).tril()
    last = difference.diagonal(dim1=1, dim2=2)[..., None]
    assert torch.allclose(difference, last.expand_as(difference).tril(), atol=1e-6)
    other = package.AlibiPositionalBias(num_heads)(30, 30).tril()
    assert torch.allclose(ours.tril().float(), other.expand_as(ours), rtol=1e-6)


def interleaved(x: Tensor) -> Tensor:
    """Halves (f, f + F) as neighbours (2f, 2f + 1), which is how x-transformers pairs."""
    return torch.stack(x.chunk(2, -1), -1).flatten(-2)


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("extrapolation", ["", "+pi", "+ntk"])
def test_xpos_is_that_of_x_transformers(extrapolation: str) -> None:
    """Scores; single rotations differ by the center, which cancels."""
    s = 244 / 124
    options = {"": {}, "+pi": {"interpolation_factor": s}, "+ntk": {"base_rescale_factor": s}}
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    module = package.RotaryEmbedding(64, use_xpos=True, scale_base=62, **options[extrapolation])
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 1, 2, 244, 64, generator=generator)
    freqs, scale = module.forward_from_seq_len(244)
    turned_q = package.apply_rotary_pos_emb(interleaved(q), freqs, scale)
    turned_k = package.apply_rotary_pos_emb(interleaved(k), freqs, scale**-1)
    theirs = torch.einsum("bhtk,bhik->bhti", turned_q, turned_k)

    where = small_decoders.setting(head_dim=64, trained_length=124, max_length=244)
    pe = build(f"xpos{extrapolation}", where).eval()
    seqs = small_decoders.sequences([244], length=244)
    by = pe.start(torch.zeros(1, 244, where.hidden_size), pe.indices(seqs), seqs)
    ours = torch.einsum(
        "bthk,bihk->bhti", rotate(q.transpose(1, 2), by.query), rotate(k.transpose(1, 2), by.key)
    )
    seen = torch.ones(244, 244, dtype=torch.bool).tril()
    assert error(ours[..., seen], theirs[..., seen]) < 1e-4
