"""PI, NTK, dynamic NTK, YaRN and log n: numbers at the sizes of presets, and what is left alone.

test_oracles.py holds them in whole decoders; numberings of randomized positions are tested in
test_draws.py.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.contracts.examples import decoder_for, forward
from tape_arith.arith.registry.names import parse
from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary
from tests.helpers.oracles import rotary as oracle
from tests.helpers.oracles.decoder import Row
from tests.helpers.small_decoders import build, error, sequences, setting

# head_dim, L0 and L1 of the presets paper-40, paper-20 and mini, and of Llama 2.
EXTRAPOLATIONS = ("pi", "ntk", "ntk-dynamic", "ntk-dynamic:factor=4", "yarn", "yarn:ramp=paper")
SIZES = [(64, 124, 244), (64, 64, 124), (32, 28, 52), (128, 4096, 8192)]


def turned(name: str, sizes: Setting, final: int) -> tuple[Tensor, Tensor]:
    """Return the angles of the token of index 1, [F], and the amplitude of cos and sin, [F]."""
    pe = build(name, sizes).eval()
    assert isinstance(pe, Rotary)
    seqs = sequences([final], length=1, offset=1)
    cos, sin = pe.cos_sin(pe.indices(seqs), seqs, torch.float64)
    return torch.atan2(sin, cos)[0, 0, 0], torch.hypot(cos, sin)[0, 0, 0]


@pytest.mark.parametrize("name", EXTRAPOLATIONS)
@pytest.mark.parametrize(("head_dim", "trained", "longest"), SIZES)
def test_frequencies_at_the_sizes_of_presets(
    head_dim: int, trained: int, longest: int, name: str
) -> None:
    sizes = setting(head_dim=head_dim, trained_length=trained, max_length=longest)
    pe = build(f"rope+{name}", sizes).eval()
    row = Row(parse(f"rope+{name}"), {}, pe, sequences([longest], length=1), 0)
    thetas, magnitude = oracle.extrapolated(row, head_dim, oracle.frequencies(head_dim))
    theta, amplitude = turned(f"rope+{name}", sizes, longest)
    assert theta.tolist() == pytest.approx(list(thetas), rel=1e-9)
    assert amplitude.tolist() == pytest.approx([magnitude] * (head_dim // 2), rel=1e-12)


def test_published_numbers() -> None:
    """At 244 of 124 tokens and 64 channels: NTK's base, YaRN's amplitude, the ends of its ramps."""
    sizes = setting(head_dim=64, trained_length=124, max_length=244)
    theta, _ = turned("rope+ntk", sizes, 244)
    assert float(theta[1] ** -32) == pytest.approx(20112, abs=1)
    plain, _ = turned("rope", sizes, 244)
    for name, share in (("yarn", [1, 10 / 11, 9 / 11]), ("yarn:ramp=paper", [0.60, 0.45, 0.33])):
        theta, amplitude = turned(f"rope+{name}", sizes, 244)
        assert amplitude.tolist() == pytest.approx([1.0677] * 32, abs=5e-5)
        s = 244 / 124
        gamma = (theta / plain - 1 / s) / (1 - 1 / s)
        assert gamma[:3].tolist() == pytest.approx(share, abs=0.005)
        assert float(gamma[11:].abs().max()) < 1e-9 < float(gamma[10])
    assert oracle.index_ramp_ends(128, 4096) == (20, 46)


@pytest.mark.parametrize("extrapolation", ["pi", "ntk", "ntk-dynamic", "yarn", "yarn:ramp=paper"])
@pytest.mark.parametrize("name", ["rope", "xpos", "tape-heads"])
def test_rows_within_the_trained_length_and_training_are_untouched(
    name: str, extrapolation: str
) -> None:
    """Bit for bit, beside rows that are stretched, each by its own scale."""
    plain, changed = decoder_for(name), decoder_for(f"{name}+{extrapolation}")
    seqs = sequences([20, 52, 28, 40])
    actual, expected = forward(changed, seqs), forward(plain, seqs)
    assert torch.equal(actual[0], expected[0]) and torch.equal(actual[2], expected[2])
    assert error(actual[1], expected[1]) > 1e-4 and error(actual[1], actual[3]) > 1e-5
    assert torch.equal(actual[1], forward(changed, sequences([52] * 4))[1])
    assert torch.equal(forward(changed.train(), seqs), forward(plain.train(), seqs))


@pytest.mark.parametrize("name", ["rope", "tape", "fire", "cope"])
def test_logn_changes_queries_with_more_keys_than_in_training(name: str) -> None:
    """Bit for bit no other, and none in training; L0 = 28."""
    plain, changed = decoder_for(name), decoder_for(f"{name}+logn")
    seqs = sequences([40, 40], length=40)
    actual, expected = forward(changed, seqs), forward(plain, seqs)
    assert torch.equal(actual[:, :28], expected[:, :28])
    assert all(error(actual[:, t], expected[:, t]) > 1e-6 for t in range(28, 40))
    assert torch.equal(forward(changed.train(), seqs), forward(plain.train(), seqs))


def test_logn_is_refused_where_nothing_spreads() -> None:
    for name in ("stick-breaking+logn", "abacus+stick-breaking+logn"):
        with pytest.raises(UsageError, match=r"'logn' .*; StickBreaking takes none"):
            decoder_for(name)
    with pytest.raises(UsageError, match="own factor"):
        decoder_for("abacus+rope+logn", attention_scale="log")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
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
        ("p-rope:p=0.5+pi", "proportional", {"partial_rotary_factor": 0.5, "factor": s}),
    ):
        config = llama.LlamaConfig(
            hidden_size=2 * head_dim,
            num_attention_heads=2,
            head_dim=head_dim,
            max_position_embeddings=trained,
            rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **options},
        )
        compute = utils.ROPE_INIT_FUNCTIONS[kind]
        peer, magnitude = compute(
            config, torch.device("cpu"), seq_len=longest if kind == "dynamic" else None
        )
        theta, amplitude = turned(name, sizes, longest)
        assert bool(((theta - peer.double()).abs() <= 1e-5 * peer).all()), name
        assert float((amplitude - magnitude).abs().max()) < 1e-6, name
