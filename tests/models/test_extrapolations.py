"""PI, NTK, dynamic NTK and YaRN: their numbers, what they leave alone, and what they refuse.

Angles are read off `cos_sin` at index 1, so every frequency is what a token turns by.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import Setting, State
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations.pi import PI
from tape_arith.models.families.rotary import (
    Rotary,
    geometric_frequencies,
    is_geometric,
    rotation,
)
from tape_arith.models.names.locate import known_names
from tape_arith.models.sequences import Sequences
from tests.helpers import small_decoders
from tests.helpers.oracles import rotary as oracle
from tests.helpers.small_decoders import error, logits_of, redrawn, sequences

TRAINED, LONGEST = 28, 52
EXTRAPOLATIONS = ("pi", "ntk", "ntk-dynamic", "yarn", "yarn:ramp=paper")
ROTARY = ("rope", "rope-partial:fraction=0.5", "p-rope", "xpos", "pope", "tape", "tape-heads")
# head_dim, L0, L1 and the last index of YaRN's ramp of the presets paper-40, paper-20 and mini.
PRESETS = [(64, 124, 244, 11), (64, 64, 124, 9), (32, 28, 52, 3)]


def setting(head_dim: int = 16, trained: int = TRAINED, longest: int = LONGEST) -> Setting:
    return small_decoders.setting(head_dim=head_dim, trained_length=trained, max_length=longest)


def small_decoder(name: str) -> Decoder:
    torch.manual_seed(0)
    return redrawn(build(name, setting()), lambda path, parameter: parameter.ndim > 1)


def turned(name: str, where: Setting, final: int) -> tuple[Tensor, Tensor]:
    """What a token turns by, [F], and the amplitude of cos and sin, [F]."""
    pe = build(name, where).eval()
    assert isinstance(pe, Rotary)
    seqs = sequences([final], length=1, offset=1)
    cos, sin = pe.cos_sin(pe.indices(seqs), seqs, torch.float64)
    return torch.atan2(sin, cos)[0, 0, 0], torch.hypot(cos, sin)[0, 0, 0]


def base_of(theta: Tensor) -> float:
    """The base of frequencies base^(-f/F)."""
    return float(theta[1] ** -len(theta))


# ---- numbers -----------------------------------------------------------------------------------


def kept(name: str, where: Setting, final: int) -> Tensor:
    """YaRN's gamma_f [F], from theta' = theta [(1 - gamma)/s + gamma]."""
    theta, _ = turned("rope", where, final)
    changed, _ = turned(name, where, final)
    s = final / where.trained_length
    return (changed / theta - 1 / s) / (1 - 1 / s)


@pytest.mark.parametrize(("head_dim", "trained", "longest", "high"), PRESETS)
def test_the_presets(head_dim: int, trained: int, longest: int, high: int) -> None:
    """YaRN's index ramp runs from 0 to the published end; NTK keeps the highest frequency and
    divides the lowest; PI divides all."""
    where, s = setting(head_dim, trained, longest), longest / trained
    assert oracle.index_ramp_ends(head_dim, trained) == (0, high)
    gamma = kept("rope+yarn", where, longest)
    for f in range(head_dim // 2):
        assert float(gamma[f]) == pytest.approx(max(0.0, 1 - f / high), abs=1e-9)
    before, _ = turned("rope", where, longest)
    after, amplitude = turned("rope+ntk", where, longest)
    ratio = before / after
    assert float(ratio[0]) == 1 and float(ratio[-1]) == pytest.approx(s, rel=1e-12)
    assert (ratio.diff() > 0).all() and is_geometric(after)
    squeezed, other = turned("rope+pi", where, longest)
    assert error(squeezed, before / s) < 1e-12
    assert error(amplitude, torch.ones_like(other)) < 1e-12 > error(other, torch.ones_like(other))
    thetas = [turned(f"rope+{name}", where, longest)[0] for name in EXTRAPOLATIONS]
    for i, theta in enumerate(thetas):
        assert all(float((theta / other - 1).abs().max()) > 0.01 for other in thetas[:i])


def test_published_numbers() -> None:
    """At 244 of 124 tokens and 64 channels: NTK's base, YaRN's amplitude and the paper's ramp,
    which slows even the fastest frequency; Llama 2's ramp [20, 46] at 4,096 tokens."""
    where = setting(64, 124, 244)
    assert base_of(turned("rope+ntk", where, 244)[0]) == pytest.approx(20112, abs=1)
    for ramp in ("code", "paper"):
        _, amplitude = turned(f"rope+yarn:ramp={ramp}", where, 244)
        assert amplitude.tolist() == pytest.approx([1.0677] * 32, abs=5e-5)
    gamma = kept("rope+yarn:ramp=paper", where, 244)
    assert gamma[:3].tolist() == pytest.approx([0.60, 0.45, 0.33], abs=0.005)
    assert gamma[11:].abs().max() < 1e-9 < 1e-3 < gamma[10]
    gamma = kept("rope+yarn", setting(128, 4096, 8192), 8192)
    expected = [min(1.0, max(0.0, 1 - (f - 20) / (46 - 20))) for f in range(64)]
    assert gamma.tolist() == pytest.approx(expected, abs=1e-6)


def test_ntk_raises_the_base_of_the_schedule_that_turns() -> None:
    """d = 8 rotated dimensions of 16: base s^(8/6), not s^(16/14); p-rope's is the full one."""
    theta, _ = turned("rope-partial:fraction=0.5+ntk", setting(), LONGEST)
    assert base_of(theta) == pytest.approx(1e4 * (52 / 28) ** (8 / 6), rel=1e-12)
    rope, _ = turned("rope+ntk", setting(), LONGEST)
    theta, _ = turned("p-rope+ntk", setting(), LONGEST)
    assert error(theta[:6], rope[:6]) < 1e-12 and not theta[6:].any()


@pytest.mark.parametrize("final", [29, 52, 100])
def test_dynamic_ntk(final: int) -> None:
    where = setting(32)
    for name, factor in (("ntk-dynamic", 52 / 28), ("ntk-dynamic:factor=4", 4.0)):
        theta, _ = turned(f"rope+{name}", where, final)
        expected = 1e4 * (factor * final / 28 - (factor - 1)) ** (32 / 30)
        assert base_of(theta) == pytest.approx(expected, rel=1e-12)
    ntk, _ = turned("rope+ntk", where, final)
    assert error(turned("rope+ntk-dynamic:factor=1", where, final)[0], ntk) < 1e-12


def test_frequencies_of_one_base() -> None:
    assert is_geometric(geometric_frequencies(1)) and is_geometric(geometric_frequencies(9))
    assert not is_geometric(geometric_frequencies(9) * 2)
    assert not is_geometric(torch.tensor([1.0, 0.5, 0.4]))
    assert not is_geometric(torch.zeros(0))


# ---- what they leave alone ---------------------------------------------------------------------


@pytest.mark.parametrize("extrapolation", EXTRAPOLATIONS)
@pytest.mark.parametrize("name", ROTARY)
def test_rows_within_the_trained_length_and_training_are_untouched(
    name: str, extrapolation: str
) -> None:
    """Bit for bit, beside rows that are stretched, each by its own scale."""
    plain, changed = small_decoder(name), small_decoder(f"{name}+{extrapolation}")
    seqs = sequences([20, 52, 28, 40])
    ours, theirs = logits_of(changed, seqs), logits_of(plain, seqs)
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[2], theirs[2])
    assert error(ours[1], theirs[1]) > 1e-4 and error(ours[1], ours[3]) > 1e-5
    assert torch.equal(ours[1], logits_of(changed, sequences([52] * 4))[1])
    assert torch.equal(logits_of(changed.train(), seqs), logits_of(plain.train(), seqs))


@pytest.mark.parametrize("extrapolation", EXTRAPOLATIONS)
@pytest.mark.parametrize("name", ROTARY)
def test_stateless_and_fixed_by_the_final_length(name: str, extrapolation: str) -> None:
    """YaRN's published class keeps a cache: two identical calls differ there. A scale that grew
    token by token would turn old keys."""
    decoder, long = small_decoder(f"{name}+{extrapolation}"), sequences([52], length=40)
    first, longer = logits_of(decoder, sequences([40])), logits_of(decoder, long)
    assert torch.equal(logits_of(decoder, sequences([40])), first)
    assert torch.equal(logits_of(decoder, long), longer)
    for length in (1, 13, 39):
        prefix = logits_of(decoder, sequences([52], length=length))
        assert error(prefix, longer[:, :length]) < 1e-12
    shifted = logits_of(decoder, sequences([52], length=40, offset=1000))
    assert error(shifted, longer) < 1e-9


@pytest.mark.parametrize("extrapolation", ["pi", "ntk", "yarn"])
@pytest.mark.parametrize("name", ["rope", "tape", "tape-heads"])
def test_static_scale_is_that_of_the_longest_test_sequence(name: str, extrapolation: str) -> None:
    static = small_decoder(f"{name}+{extrapolation}:scale=static")
    by_problem = small_decoder(f"{name}+{extrapolation}")
    ours = logits_of(static, sequences([9, 28, 40, 52]))
    assert error(ours, logits_of(by_problem, sequences([52] * 4))) < 1e-12


def test_xpos_decays_by_the_true_distance() -> None:
    """Magnitudes of what turns queries and keys do not change, only their angles."""
    seqs, sizes = sequences([52]), []
    x = torch.zeros(1, 12, small_decoders.SETTING.hidden_size, dtype=torch.float64)
    for name in ("xpos", "xpos+pi", "xpos+ntk"):
        pe = build(name, setting()).eval()
        by = pe.start(x, pe.indices(seqs), seqs).query
        sizes.append(torch.hypot(by.diagonal, by.cross))
    assert error(sizes[1], sizes[0]) < 1e-12 > error(sizes[2], sizes[0])


# ---- what they refuse --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nope+pi", "NoPE has none"),
        ("fire+ntk", "FIRE has none"),
        ("selective-rope+yarn", "SelectiveRoPE has none"),
        ("tape:start=learned+pi", "no frequencies"),
        ("tape-heads:start=learned+yarn", "no frequencies"),
        ("tape:start=fourier+ntk", "not powers of one base"),
        ("tape-heads:start=fourier+ntk-dynamic", "not powers of one base"),
        ("tape:start=fourier+yarn", "ramp=paper"),
        ("rope-partial:fraction=0.125+ntk", "one frequency"),
        ("rope+ntk-dynamic:factor=0.5", "factor must be 1 or more"),
        # Positions that do not grow with the length.
        *(
            (f"{name}+{e}", "cannot act on")
            for name in ("rand-rope", "bipe")
            for e in EXTRAPOLATIONS
        ),
    ],
)
def test_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        build(name, setting())
    assert "\n" not in str(caught.value)


class OwnAngles(Rotary):
    """Overrides `start` without asking `cos_sin`."""

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        angles = index[..., None, None] * self.frequencies().to(x.dtype)
        return rotation(angles.cos(), angles.sin())


def test_a_start_of_its_own_that_ignores_the_change_is_refused() -> None:
    assert "nothing would change" in (PI().why_unsupported(OwnAngles(setting())) or "")
    for name in (*ROTARY, "tape:start=fourier"):
        pe = build(name, setting())
        assert PI().why_unsupported(pe) is None


def test_every_extrapolation_is_tested() -> None:
    """Those of positions in test_draws.py."""
    names = {name.split(":")[0] for name in EXTRAPOLATIONS}
    assert sorted([*names, *small_decoders.NUMBERINGS]) == known_names("extrapolation")


# ---- against transformers ----------------------------------------------------------------------


def of_transformers(kind: str, where: Setting, **options: float) -> tuple[Tensor, float]:
    """Inverse frequencies and amplitude that `transformers` computes for this rope_type."""
    utils: Any = pytest.importorskip("transformers.modeling_rope_utils")
    llama: Any = pytest.importorskip("transformers.models.llama.configuration_llama")
    length = int(options.pop("seq_len", 0)) or None
    config = llama.LlamaConfig(
        hidden_size=2 * where.head_dim,
        num_attention_heads=2,
        head_dim=where.head_dim,
        max_position_embeddings=where.trained_length,
        rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **options},
    )
    compute = utils.ROPE_INIT_FUNCTIONS[kind]
    theta, amplitude = compute(config, torch.device("cpu"), seq_len=length)
    return theta.double(), amplitude


@pytest.mark.slow
@pytest.mark.parametrize(("head_dim", "trained", "longest", "_"), PRESETS)
def test_against_transformers(head_dim: int, trained: int, longest: int, _: int) -> None:
    where, s = setting(head_dim, trained, longest), longest / trained
    for ours, kind, options in (
        ("rope+pi", "linear", {"factor": s}),
        ("rope+ntk", "dynamic", {"factor": 1.0, "seq_len": longest}),
        ("rope+ntk-dynamic", "dynamic", {"factor": s, "seq_len": longest}),
        ("rope+ntk-dynamic:factor=4", "dynamic", {"factor": 4.0, "seq_len": longest}),
        ("rope+yarn", "yarn", {"factor": s, "original_max_position_embeddings": trained}),
        ("p-rope", "proportional", {"partial_rotary_factor": 0.75}),
        ("p-rope:p=0.5+pi", "proportional", {"partial_rotary_factor": 0.5, "factor": s}),
    ):
        theirs, magnitude = of_transformers(kind, where, **options)
        theta, amplitude = turned(ours, where, longest)
        assert bool(((theta - theirs).abs() <= 1e-5 * theirs).all()), ours
        assert float((amplitude - magnitude).abs().max()) < 1e-6, ours
