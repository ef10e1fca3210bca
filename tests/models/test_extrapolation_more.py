"""PI, NTK and dynamic NTK: their numbers, what they leave alone, and what they cannot act on.

Angles are read off `cos_sin` at index 1, so every frequency is what a token turns by.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import (
    Rotary,
    geometric_frequencies,
    is_geometric,
    rotate,
    rotation,
)
from tape_arith.models.names.locate import known_names
from tests.models import naive, small
from tests.models.small import error, logits_of, redrawn, sequences

HIDDEN, TRAINED, LONGEST = small.SETTING.hidden_size, 28, 52
EXTRAPOLATIONS = ("pi", "ntk", "ntk-dynamic", "yarn")
ROTARY = (
    *("rope", "rope-partial:fraction=0.5", "p-rope", "xpos", "pope"),
    *("tape", "tape-heads"),
)
# head_dim, L0 and L1 of the presets.
PRESETS = [(64, 124, 244), (64, 64, 124), (32, 28, 52)]


def setting(head_dim: int = 16, trained: int = TRAINED, longest: int = LONGEST) -> Setting:
    return small.setting(head_dim=head_dim, trained_length=trained, max_length=longest)


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


# ---- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("head_dim", "trained", "longest"), PRESETS)
def test_pi_divides_every_frequency(head_dim: int, trained: int, longest: int) -> None:
    theta, amplitude = turned("rope+pi", setting(head_dim, trained, longest), longest)
    expected = torch.tensor(naive.frequencies(head_dim), dtype=torch.float64) * trained / longest
    assert error(theta, expected) < 1e-12
    assert error(amplitude, torch.ones_like(amplitude)) < 1e-12


def base_of(theta: Tensor) -> float:
    """The base of frequencies base^(-f/F)."""
    return float(theta[1] ** -len(theta))


def test_ntk_raises_the_base_to_the_published_number() -> None:
    theta, amplitude = turned("rope+ntk", setting(64, 124, 244), 244)
    assert base_of(theta) == pytest.approx(20112, abs=1)
    assert base_of(theta) == pytest.approx(1e4 * (244 / 124) ** (64 / 62), rel=1e-12)
    assert error(amplitude, torch.ones_like(amplitude)) < 1e-12


@pytest.mark.parametrize(("head_dim", "trained", "longest"), PRESETS)
@pytest.mark.parametrize("name", ["rope", "tape", "tape-heads", "xpos", "p-rope:p=1", "pope"])
def test_ntk_keeps_the_highest_and_divides_the_lowest(
    name: str, head_dim: int, trained: int, longest: int
) -> None:
    where = setting(head_dim, trained, longest)
    before, _ = turned(name, where, longest)
    after, _ = turned(f"{name}+ntk", where, longest)
    ratio = before / after
    assert float(ratio[0]) == 1
    assert float(ratio[-1]) == pytest.approx(longest / trained, rel=1e-12)
    assert (ratio.diff() > 0).all()
    assert is_geometric(after)


def test_ntk_on_a_partial_rotation_is_that_of_its_own_schedule() -> None:
    """d = 8 rotated dimensions of 16: base s^(8/6), not s^(16/14)."""
    theta, _ = turned("rope-partial:fraction=0.5+ntk", setting(), LONGEST)
    assert base_of(theta) == pytest.approx(1e4 * (52 / 28) ** (8 / 6), rel=1e-12)


def test_ntk_on_p_rope_is_that_of_the_full_schedule() -> None:
    rope, _ = turned("rope+ntk", setting(), LONGEST)
    theta, _ = turned("p-rope+ntk", setting(), LONGEST)
    assert error(theta[:6], rope[:6]) < 1e-12
    assert not theta[6:].any()


@pytest.mark.parametrize("final", [29, 40, 52, 100])
def test_dynamic_ntk(final: int) -> None:
    where = setting(32)
    for name, factor in (("ntk-dynamic", 52 / 28), ("ntk-dynamic:factor=4", 4.0)):
        theta, amplitude = turned(f"rope+{name}", where, final)
        expected = 1e4 * (factor * final / 28 - (factor - 1)) ** (32 / 30)
        assert base_of(theta) == pytest.approx(expected, rel=1e-12)
        assert error(amplitude, torch.ones_like(amplitude)) < 1e-12
    ntk, _ = turned("rope+ntk", where, final)
    assert error(turned("rope+ntk-dynamic:factor=1", where, final)[0], ntk) < 1e-12
    assert error(turned("rope+ntk-dynamic", where, final)[0], ntk) > 1e-7


def test_the_four_differ() -> None:
    thetas = [turned(f"rope+{name}", setting(64, 124, 244), 244)[0] for name in EXTRAPOLATIONS]
    for i, theta in enumerate(thetas):
        assert all(float((theta / other - 1).abs().max()) > 0.01 for other in thetas[:i])


# ---- what they leave alone ---------------------------------------------------------------------


@pytest.mark.parametrize("extrapolation", EXTRAPOLATIONS)
@pytest.mark.parametrize("name", ROTARY)
def test_rows_within_the_trained_length_are_untouched(name: str, extrapolation: str) -> None:
    """Bit for bit, beside rows that are stretched; in training all of them."""
    plain, changed = small_decoder(name), small_decoder(f"{name}+{extrapolation}")
    seqs = sequences([20, 52, 28, 40])
    ours, theirs = logits_of(changed, seqs), logits_of(plain, seqs)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[2], theirs[2])
    assert error(ours[1], theirs[1]) > 1e-4
    assert error(ours[1], ours[3]) > 1e-5
    assert torch.equal(logits_of(changed.train(), seqs), logits_of(plain.train(), seqs))


@pytest.mark.parametrize("extrapolation", EXTRAPOLATIONS)
@pytest.mark.parametrize("name", ROTARY)
def test_nothing_is_kept_between_calls(name: str, extrapolation: str) -> None:
    decoder = small_decoder(f"{name}+{extrapolation}")
    first, long = logits_of(decoder, sequences([40])), sequences([52], length=40)
    longer = logits_of(decoder, long)
    assert torch.equal(logits_of(decoder, sequences([40])), first)
    assert torch.equal(logits_of(decoder, long), longer)
    for length in (1, 13, 39):
        prefix = logits_of(decoder, sequences([52], length=length))
        assert error(prefix, longer[:, :length]) < 1e-12


@pytest.mark.parametrize("extrapolation", EXTRAPOLATIONS)
@pytest.mark.parametrize("name", [name for name in ROTARY if name != "rand-rope"])
def test_a_shift_changes_nothing(name: str, extrapolation: str) -> None:
    decoder = small_decoder(f"{name}+{extrapolation}")
    logits = logits_of(decoder, sequences([52, 40]))
    for offset in (3, 1000):
        assert error(logits_of(decoder, sequences([52, 40], offset=offset)), logits) < 1e-9


@pytest.mark.parametrize("extrapolation", ["pi", "ntk"])
@pytest.mark.parametrize("name", ["rope", "tape"])
def test_static_scale_is_that_of_the_longest_test_sequence(name: str, extrapolation: str) -> None:
    static = small_decoder(f"{name}+{extrapolation}:scale=static")
    by_problem = small_decoder(f"{name}+{extrapolation}")
    ours = logits_of(static, sequences([9, 28, 40, 52]))
    assert error(ours, logits_of(by_problem, sequences([52] * 4))) < 1e-12


def test_pi_is_the_index_divided() -> None:
    """Scores at distance 2 s are those of distance 2 before."""
    where = setting(trained=20, longest=40)
    pe, plain = build("rope+pi", where).eval(), build("rope", where).eval()
    assert isinstance(pe, Rotary) and isinstance(plain, Rotary)
    long, short = sequences([40], length=12), sequences([20], length=6)
    ours = pe.cos_sin(pe.indices(long), long, torch.float64)
    theirs = plain.cos_sin(plain.indices(short), short, torch.float64)
    assert error(ours[0][:, ::2], theirs[0]) < 1e-12
    assert error(ours[1][:, ::2], theirs[1]) < 1e-12


def test_xpos_decays_by_the_true_distance() -> None:
    """Magnitudes of what turns queries and keys do not change, only their angles."""
    seqs = sequences([52])
    x = torch.zeros(1, 12, HIDDEN, dtype=torch.float64)
    sizes = []
    for name in ("xpos", "xpos+pi", "xpos+ntk"):
        pe = build(name, setting()).eval()
        by = pe.start(x, pe.indices(seqs), seqs).query
        sizes.append(torch.hypot(by.diagonal, by.cross))
    assert error(sizes[1], sizes[0]) < 1e-12
    assert error(sizes[2], sizes[0]) < 1e-12


# ---- what they cannot act on -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nope+pi", "NoPE has none"),
        ("fire+ntk", "FIRE has none"),
        ("selective-rope+pi", "SelectiveRoPE has none"),
        ("selective-rope+yarn", "SelectiveRoPE has none"),
        ("tape:start=learned+pi", "no frequencies"),
        ("tape-heads:start=learned+yarn", "no frequencies"),
        ("tape:start=learned+ntk-dynamic", "no frequencies"),
        ("tape:start=fourier+ntk", "not powers of one base"),
        ("tape-heads:start=fourier+ntk-dynamic", "not powers of one base"),
        ("tape:start=fourier+yarn", "ramp=paper"),
        ("rope-partial:fraction=0.125+ntk", "one frequency"),
        ("rope+ntk-dynamic:factor=0.5", "factor must be 1 or more"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        build(name, setting())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tape", "tape-heads"])
@pytest.mark.parametrize("extrapolation", ["pi", "yarn:ramp=paper"])
def test_what_needs_no_base_acts_on_random_frequencies(name: str, extrapolation: str) -> None:
    plain = small_decoder(f"{name}:start=fourier")
    changed = small_decoder(f"{name}:start=fourier+{extrapolation}")
    ours, theirs = (logits_of(d, sequences([20, 52])) for d in (changed, plain))
    assert torch.equal(ours[0], theirs[0])
    assert error(ours[1], theirs[1]) > 1e-4


def test_every_extrapolation_is_tested_here() -> None:
    """Those of positions in test_numbering.py."""
    assert sorted([*EXTRAPOLATIONS, *small.NUMBERINGS]) == known_names("extrapolation")


def test_frequencies_of_one_base() -> None:
    assert is_geometric(geometric_frequencies(1)) and is_geometric(geometric_frequencies(9))
    assert not is_geometric(geometric_frequencies(9) * 2)
    assert not is_geometric(torch.tensor([1.0, 0.5, 0.4]))
    assert not is_geometric(torch.zeros(0))


# ---- against packages --------------------------------------------------------------------------


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
@pytest.mark.parametrize(("head_dim", "trained", "longest"), PRESETS)
def test_against_transformers(head_dim: int, trained: int, longest: int) -> None:
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
        assert error(theta, theirs) < 1e-6, ours
        assert bool(((theta - theirs).abs() <= 1e-5 * theirs).all()), ours
        assert error(amplitude, torch.full_like(amplitude, magnitude)) < 1e-6, ours


@pytest.mark.slow
@pytest.mark.parametrize("extrapolation", ["", "+ntk", "+pi", "+yarn"])
def test_partial_rotations_against_transformers(extrapolation: str) -> None:
    """GPT-NeoX's own function, on queries and keys: the same dimensions turn."""
    neox: Any = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    where, s = setting(64, 124, 244), 244 / 124
    kind, options = {
        "": ("linear", {"factor": 1.0}),
        "+pi": ("linear", {"factor": s}),
        "+ntk": ("dynamic", {"factor": 1.0, "seq_len": 244}),
        "+yarn": ("yarn", {"factor": s, "original_max_position_embeddings": 124}),
    }[extrapolation]
    theta, amplitude = of_transformers(kind, where, partial_rotary_factor=0.25, **options)
    assert len(theta) == 8
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 1, 12, 2, 64, generator=generator, dtype=torch.float64)
    angles = (torch.arange(12)[:, None] * theta).repeat(1, 2)[None]
    theirs = neox.apply_rotary_pos_emb(
        q.transpose(1, 2), k.transpose(1, 2), angles.cos() * amplitude, angles.sin() * amplitude
    )
    pe = build(f"rope-partial{extrapolation}", where).eval()
    seqs = sequences([244])
    by = pe.start(torch.zeros(1, 12, HIDDEN, dtype=torch.float64), pe.indices(seqs), seqs)
    layer = pe.layers[0]
    for x, expected in zip((q, k), theirs, strict=True):
        assert error(layer.turn(x, by), expected.transpose(1, 2)) < 1e-5  # type: ignore[operator]


def interleaved(x: Tensor) -> Tensor:
    """Halves (f, f + F) as neighbours (2f, 2f + 1), which is how x-transformers pairs."""
    return torch.stack(x.chunk(2, -1), -1).flatten(-2)


@pytest.mark.slow
@pytest.mark.parametrize("extrapolation", ["", "+pi", "+ntk"])
@pytest.mark.filterwarnings("ignore")
def test_xpos_against_x_transformers(extrapolation: str) -> None:
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

    pe: PositionalEncoding = build(f"xpos{extrapolation}", setting(64, 124, 244)).eval()
    seqs = sequences([244], length=244)
    by = pe.start(torch.zeros(1, 244, HIDDEN), pe.indices(seqs), seqs)
    ours = torch.einsum(
        "bthk,bihk->bhti", rotate(q.transpose(1, 2), by.query), rotate(k.transpose(1, 2), by.key)
    )
    seen = torch.ones(244, 244, dtype=torch.bool).tril()
    assert error(ours[..., seen], theirs[..., seen]) < 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pope_against_x_transformers() -> None:
    package: Any = pytest.importorskip("x_transformers.x_transformers")
    torch.manual_seed(4)
    module = package.PolarEmbedding(64, 2)
    pe = build("pope", setting(64, 124, 244)).eval()
    with torch.no_grad():
        module.learned_bias.uniform_(-2 * math.pi, 0)
        for phase in pe.layers[0].parameters():
            phase.copy_(module.learned_bias[:, 0])
    q, k = torch.randn(2, 1, 2, 50, 64)
    freqs, bias = module(torch.arange(50))
    theirs = torch.einsum(
        "bhtk,bhik->bhti",
        package.apply_polar_pos_emb(q, freqs),
        package.apply_polar_pos_emb(k, freqs + bias),
    )
    seqs = sequences([50], length=50)
    kept: list[Tensor] = []

    def keep(q: Tensor, k: Tensor, values: tuple[Tensor, ...], *_: Any, **__: Any) -> Any:
        kept.extend((q, k))
        return values

    layer: Any = pe.layers[0]
    layer.attention = keep
    x = torch.zeros(1, 50, HIDDEN)
    state = pe.start(x, pe.indices(seqs), seqs)
    layer.attend(x, q.transpose(1, 2), k.transpose(1, 2), q.transpose(1, 2), state, seqs)
    ours = torch.einsum("bthk,bihk->bhti", *kept)
    assert error(ours, theirs.detach()) < 1e-4


def test_the_amplitude_of_a_rotation_is_that_of_its_parts() -> None:
    """What `turned` reads is what a query is multiplied by."""
    theta, amplitude = turned("rope+yarn", setting(64, 124, 244), 244)
    unit = torch.zeros(1, 1, 1, 64, dtype=torch.float64)
    unit[..., :32] = 1
    by = rotation(*(f(theta)[None, None, None] * amplitude for f in (torch.cos, torch.sin)))
    y = rotate(unit, by)[0, 0, 0]
    assert error(torch.hypot(y[:32], y[32:]), amplitude) < 1e-12
    assert float(amplitude[0]) == pytest.approx(0.1 * math.log(244 / 124) + 1)
