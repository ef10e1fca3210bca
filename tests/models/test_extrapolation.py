"""Positions beyond the trained ones: YaRN's numbers, and randomized positions.

What is asserted is read off the documented state of tape (its first e holds cosine and sine of
every angle, with their amplitude) and off logits, never off the code that computes them.

Legend: B batch, T tokens, F frequencies.
"""

import itertools
import math

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences
from tests.models import naive, small
from tests.models.small import error, logits_of, redrawn, sequences

HIDDEN = small.SETTING.hidden_size
ROTARY = ("rope", "tape", "tape-heads")
# (head_dim, L0, L1, last index of the ramp) of the presets paper-40, paper-20 and mini.
PRESETS = [(64, 124, 244, 11), (64, 64, 124, 9), (32, 28, 52, 3)]


def setting(head_dim: int = 8, trained_length: int = 28, max_length: int = 52) -> Setting:
    return small.setting(head_dim=head_dim, trained_length=trained_length, max_length=max_length)


def small_decoder(name: str) -> Decoder:
    """What the encoding learns is off its start too."""
    return redrawn(build(name, setting()), lambda path, p: p.ndim > 1 or path.startswith("pe."))


# ---- YaRN --------------------------------------------------------------------------------------


def frequencies_and_amplitude(name: str, where: Setting, final: int) -> tuple[Tensor, Tensor]:
    """theta'_f [F] and the amplitude [F] of cosine and sine, from the matrices of token 1."""
    pe = build(name, where).eval()
    seqs = sequences([final], length=2)
    index = pe.indices(seqs)
    state = pe.start(torch.zeros(1, 2, HIDDEN, dtype=torch.float64), index, seqs)
    e = state.e
    cos, sin = e[0, 1, 0, 0].chunk(2)  # row l = 0 is [cos | sin]
    return torch.atan2(sin, cos), torch.hypot(cos, sin)


def kept(name: str, where: Setting, final: int) -> Tensor:
    """gamma_f [F], from theta' = theta [(1 - gamma)/s + gamma]."""
    theta, _ = frequencies_and_amplitude("tape", where, final)
    changed, _ = frequencies_and_amplitude(name, where, final)
    s = final / where.trained_length
    return (changed / theta - 1 / s) / (1 - 1 / s)


@pytest.mark.parametrize(("head_dim", "trained", "longest", "high"), PRESETS)
def test_index_ramp_runs_from_0_to_the_published_end(
    head_dim: int, trained: int, longest: int, high: int
) -> None:
    gamma = kept("tape+yarn", setting(head_dim, trained, longest), longest)
    for f in range(head_dim // 2):
        assert float(gamma[f]) == pytest.approx(max(0.0, 1 - f / high), abs=1e-9)
    assert naive.index_ramp_ends(head_dim, trained) == (0, high)


def test_index_ramp_may_start_later() -> None:
    """Contexts of language models: 4,096 tokens at 128 channels, ramp [20, 46] (arXiv 2309.00071's
    code for Llama 2)."""
    gamma = kept("tape+yarn", setting(128, 4096, 8192), 8192)
    for f in range(64):
        ramp = 1 - (f - 20) / (46 - 20)
        assert float(gamma[f]) == pytest.approx(min(1.0, max(0.0, ramp)), abs=1e-6)


def test_paper_ramp_slows_even_the_fastest_frequency() -> None:
    gamma = kept("tape+yarn:ramp=paper", setting(64, 124, 244), 244)
    for f, expected in enumerate((0.60, 0.45, 0.33)):
        assert float(gamma[f]) == pytest.approx(expected, abs=0.005)
    # Less than one turn within 124 tokens from frequency 11 on: 21 of 32, all wholly interpolated.
    assert gamma[11:].abs().max() < 1e-9
    assert gamma[10] > 1e-3
    theta, _ = frequencies_and_amplitude("tape+yarn:ramp=paper", setting(64, 124, 244), 244)
    assert float(theta[0]) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("ramp", ["code", "paper"])
def test_amplitude_of_cosine_and_sine(ramp: str) -> None:
    where = setting(64, 124, 244)
    _, amplitude = frequencies_and_amplitude(f"tape+yarn:ramp={ramp}", where, 244)
    assert amplitude.tolist() == pytest.approx([1.0677] * 32, abs=5e-5)
    assert amplitude.tolist() == pytest.approx([0.1 * math.log(244 / 124) + 1] * 32, abs=1e-12)


def test_default_ramp_is_the_codes_and_default_scale_the_problems() -> None:
    where = setting(64, 124, 244)
    for name in ("tape+yarn:ramp=code", "tape+yarn:scale=problem"):
        for final in (150, 244):
            theirs = frequencies_and_amplitude("tape+yarn", where, final)
            ours = frequencies_and_amplitude(name, where, final)
            assert all(map(torch.equal, ours, theirs))
    code, paper = (kept(f"tape+yarn:ramp={ramp}", where, 244) for ramp in ("code", "paper"))
    assert (code - paper).abs().max() > 0.3


@pytest.mark.parametrize("ramp", ["code", "paper"])
@pytest.mark.parametrize("name", ROTARY)
def test_yarn_is_stateless(name: str, ramp: str) -> None:
    """The authors' class keeps a cache: two identical calls differed there, and so did a call
    within the trained length after one beyond it."""
    fresh = small_decoder(f"{name}+yarn:ramp={ramp}")
    short, long = sequences([20]), sequences([52])
    first_short = logits_of(fresh, short)
    used = small_decoder(f"{name}+yarn:ramp={ramp}")
    first_long, second_long = logits_of(used, long), logits_of(used, long)
    assert torch.equal(first_long, second_long)
    assert torch.equal(logits_of(used, short), first_short)
    assert error(first_long, first_short) > 1e-3
    assert torch.equal(logits_of(fresh, long), first_long)


@pytest.mark.parametrize("ramp", ["code", "paper"])
@pytest.mark.parametrize("name", ROTARY)
def test_rows_within_the_trained_length_are_untouched(name: str, ramp: str) -> None:
    """Bit for bit, and beside rows that are stretched."""
    plain, extrapolated = small_decoder(name), small_decoder(f"{name}+yarn:ramp={ramp}")
    seqs = sequences([20, 52, 28, 29])
    ours, theirs = logits_of(extrapolated, seqs), logits_of(plain, seqs)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[2], theirs[2])
    assert error(ours[1], theirs[1]) > 1e-3
    assert error(ours[3], theirs[3]) > 1e-5
    # The scale is each row's own.
    assert torch.equal(ours[1], logits_of(extrapolated, sequences([52] * 4))[1])


@pytest.mark.parametrize("name", ROTARY)
def test_the_scale_is_fixed_by_the_final_length_alone(name: str) -> None:
    """Tokens come one by one in decoding; a scale that grew with them would turn old keys."""
    decoder = small_decoder(f"{name}+yarn")
    whole = logits_of(decoder, sequences([52], length=40))
    for length in (1, 13, 39):
        prefix = logits_of(decoder, sequences([52], length=length))
        assert error(prefix, whole[:, :length]) < 1e-12


@pytest.mark.parametrize("name", ROTARY)
def test_static_scale_is_that_of_the_longest_test_sequence(name: str) -> None:
    static, by_problem = small_decoder(f"{name}+yarn:scale=static"), small_decoder(f"{name}+yarn")
    ours = logits_of(static, sequences([9, 28, 40, 52]))
    expected = logits_of(by_problem, sequences([52] * 4))
    assert error(ours, expected) < 1e-12


@pytest.mark.parametrize("name", ROTARY)
def test_yarn_changes_nothing_in_training(name: str) -> None:
    seqs = sequences([52])
    plain = logits_of(small_decoder(name).train(), seqs)
    assert torch.equal(logits_of(small_decoder(f"{name}+yarn").train(), seqs), plain)


@pytest.mark.parametrize("name", ["nope+yarn", "fire+yarn"])
def test_yarn_needs_frequencies(name: str) -> None:
    with pytest.raises(UsageError):
        build(name, setting())


# ---- randomized positions ----------------------------------------------------------------------


def indices(
    pe: PositionalEncoding, keys: list[int], final_lengths: list[int], length: int
) -> Tensor:
    return pe.indices(sequences(final_lengths, length=length, keys=keys))


def random_keys(count: int) -> list[int]:
    generator = torch.Generator().manual_seed(3)
    keys: list[int] = torch.randint(0, 2**63 - 1, (count,), generator=generator).tolist()
    return keys


def test_a_row_is_a_function_of_its_key() -> None:
    decoder = small_decoder("rand-rope")
    together = logits_of(decoder, sequences([20, 20, 20], keys=[7, 8, 7]))
    assert torch.equal(together[0], together[2])
    assert error(together[1], together[0]) > 1e-3
    # Neither the rest of the batch nor a call before nor torch's own generator has a say.
    torch.manual_seed(123)
    assert torch.equal(logits_of(decoder, sequences([20, 20, 20], keys=[9, 9, 7]))[2], together[0])
    # The same in training as in evaluation: a new draw is a new key.
    trained = logits_of(decoder.train(), sequences([20, 20, 20], keys=[7, 8, 7]))
    assert torch.equal(trained, together)


def test_differs_from_rope() -> None:
    """The released baseline of this name drew from as many positions as there are tokens, and so
    was RoPE to the last bit."""
    seqs = sequences([20], keys=[7])
    ours, rope = small_decoder("rand-rope"), small_decoder("rope")
    assert error(logits_of(ours, seqs), logits_of(rope, seqs)) > 1e-3
    assert not torch.equal(ours.pe.indices(seqs)[0], torch.arange(12))


@pytest.mark.parametrize("l_max", [None, 60, 4096])
def test_indices_increase_within_l_max(l_max: int | None) -> None:
    pe = build("rand-rope" if l_max is None else f"rand-rope:l_max={l_max}", setting())
    bound = 2 * 52 if l_max is None else l_max
    index = indices(pe, random_keys(300), [52] * 300, 52)
    assert index.dtype == torch.int64 and index.shape == (300, 52)
    assert (index.diff(dim=1) > 0).all()
    assert index.min() >= 0 and index.max() < bound
    # All of the range is used.
    assert index.min() < 0.05 * bound and index.max() > 0.95 * bound


def test_an_index_depends_on_no_later_token_and_no_padding() -> None:
    pe = build("rand-rope", setting())
    whole = indices(pe, [5, 6], [20, 20], 20)
    for length in (1, 7, 19):
        assert torch.equal(indices(pe, [5, 6], [20, 20], length), whole[:, :length])
    # A longer neighbour pads the row.
    padded = indices(pe, [5, 11], [20, 50], 50)
    assert torch.equal(padded[0, :20], whole[0])
    # Other tokens with the same final length change nothing.
    seqs = sequences([20, 20], length=20, keys=[5, 6])
    other = Sequences(seqs.tokens.flip(1), seqs.final_length, seqs.key)
    assert torch.equal(pe.indices(other), whole)


@pytest.mark.parametrize("keys", [random_keys(4000), list(range(4000))], ids=["random", "counted"])
def test_every_subset_is_equally_likely(keys: list[int]) -> None:
    """3 of 6 positions, 20 subsets, 4,000 keys: chi-square with 19 degrees of freedom."""
    pe = build("rand-rope:l_max=6", setting(max_length=3))
    drawn = indices(pe, keys, [3] * len(keys), 3).tolist()
    counts = dict.fromkeys(itertools.combinations(range(6), 3), 0)
    for subset in drawn:
        counts[tuple(subset)] += 1
    expected = len(keys) / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < 43.8  # the 99.9 % quantile
    assert statistic > 5.4  # the 0.1 % quantile: no better than chance either


def test_more_tokens_than_positions_is_the_users_error() -> None:
    pe = build("rand-rope:l_max=60", setting())
    with pytest.raises(UsageError, match="l_max"):
        indices(pe, [1, 2], [20, 61], 20)
    indices(pe, [1, 2], [20, 60], 20)


# ---- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tape", "tape-heads"])
def test_neighbours_far_out_are_told_apart_in_bfloat16(name: str) -> None:
    """3000 and 3001 are one bfloat16 number: angles must never be computed in the model's type."""
    pe = build(name, setting()).bfloat16()
    seqs = sequences([52], length=2, offset=3000)
    e = pe.start(torch.zeros(1, 2, HIDDEN, dtype=torch.bfloat16), pe.indices(seqs), seqs).e
    assert e.dtype == torch.float32
    row = e[0, :, 0, 0] if name == "tape" else e[0, :, 0]  # [cos | sin] of each token
    for token, index in enumerate((3000, 3001)):
        for f, theta in enumerate(naive.frequencies(8)):
            assert float(row[token, f]) == pytest.approx(math.cos(index * theta), abs=1e-6)
            assert float(row[token, 4 + f]) == pytest.approx(math.sin(index * theta), abs=1e-6)
    assert (row[0] - row[1]).abs().max() > 0.5


@pytest.mark.parametrize("autocast", [False, True], ids=["bfloat16 weights", "autocast"])
@pytest.mark.parametrize("name", ROTARY)
def test_bfloat16_is_as_good_far_out_as_near(name: str, autocast: bool) -> None:
    """Were positions rounded to every eighth or sixteenth number, tokens would share them."""
    exact = small_decoder(name)
    rough = small_decoder(name).to(torch.float32 if autocast else torch.bfloat16)
    for offset in (0, 3000):
        seqs = sequences([52], offset=offset)
        expected = logits_of(exact, seqs)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            assert error(logits_of(rough, seqs).double(), expected) < 0.05
    # What that would look like: all these tokens at one position.
    collapsed = small_decoder("nope")
    with torch.no_grad():
        shared = dict(exact.named_parameters())
        for path, weight in collapsed.named_parameters():
            weight.copy_(shared[path])
    assert error(logits_of(collapsed, seqs), expected) > 0.1


@pytest.mark.parametrize("autocast", [False, True], ids=["bfloat16 weights", "autocast"])
def test_fire_in_bfloat16(autocast: bool) -> None:
    """Distances and indices beyond 256 keep their digits. (Their logarithms hardly differ, so that
    no collapse would show; what would is a mixture of types that cannot be multiplied.)"""
    exact = small_decoder("fire:init_l=8")
    rough = small_decoder("fire:init_l=8").to(torch.float32 if autocast else torch.bfloat16)
    for offset in (0, 300):
        seqs = sequences([52], offset=offset)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            assert error(logits_of(rough, seqs).double(), logits_of(exact, seqs)) < 0.05


def test_randomized_positions_far_out_in_bfloat16() -> None:
    """rand-rope reaches such indices with short sequences: gaps of one or two still count."""
    name = "rand-rope:l_max=4096"
    seqs = sequences([52, 52], length=52, keys=[3, 4])
    expected = logits_of(small_decoder(name), seqs)
    assert small_decoder(name).pe.indices(seqs).max() > 3000
    rough = logits_of(small_decoder(name).bfloat16(), seqs)
    assert error(rough.double(), expected) < 0.1
