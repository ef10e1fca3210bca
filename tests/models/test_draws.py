"""Encodings draw uniformly, from each row's key alone; some can be numbered anew at test time.

Legend: B batch, T tokens, n sequences.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
import torch
from torch import Tensor

from tape_arith.arith.contracts import encoding as contract
from tape_arith.arith.contracts import examples
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.registry.names import parse
from tape_arith.models.combination import Combination
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.errors import UsageError
from tape_arith.models.families.learned_table import draw
from tape_arith.models.families.randomized import Randomized, random_subset
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences, philox, random_words
from tests.helpers.small_decoders import NUMBERINGS, build, setting

DRAWS, FINAL = 4000, 11
SMALL = setting(num_layers=3, num_heads=4, hidden_size=16)
RANDOMIZED = [name for name in known_names("encoding") if name.startswith("rand-")]
REAL = [f"{name}:draw=float" for name in RANDOMIZED if name != "rand-learned"]


def same_rows(count: int = DRAWS, final_length: int = FINAL) -> Sequences:
    """`53+7=851$` for keys that follow on one another."""
    tokens = torch.tensor([[9, 7, 14, 11, 17, 12, 9, 5, 3]]).expand(count, -1)
    return Sequences(tokens, torch.full((count,), final_length), torch.arange(count))


def assert_uniform(drawn: list[int], low: int, high: int) -> None:
    """Every number of low .. high equally often, none outside: chi squared, at five deviations."""
    assert min(drawn) == low and max(drawn) == high
    cells = high - low + 1
    expected = len(drawn) / cells
    statistic = sum((drawn.count(v) - expected) ** 2 / expected for v in range(low, high + 1))
    assert statistic < cells - 1 + 5 * (2 * (cells - 1)) ** 0.5
    # No pattern from key to key: neighbours are equal as often as chance has it.
    equal = sum(a == b for a, b in pairwise(drawn))
    assert abs(equal - expected) < 5 * expected**0.5


def first_index(pe: PositionalEncoding, seqs: Sequences) -> Tensor:
    return pe.indices(seqs)[:, 0]


def first_row_of_table(pe: PositionalEncoding, seqs: Sequences) -> Tensor:
    """Return the row of a table that the first token gets, int64 [n]."""
    table = pe.get_parameter("table")
    with torch.no_grad():
        table.copy_(torch.arange(len(table))[:, None].expand_as(table))
    nothing = torch.zeros(*seqs.tokens.shape, pe.setting.hidden_size)
    return pe.embed(nothing, pe.indices(seqs), seqs)[:, 0, 0].long()


def changes(one: Decoder, other: Decoder) -> list[float]:
    """Return the largest difference of logits in each row."""
    seqs = examples.example_batch()
    change = examples.forward(one, seqs) - examples.forward(other, seqs)
    largest: list[float] = change.abs().amax((1, 2)).tolist()
    return largest


@pytest.mark.parametrize(
    ("name", "low", "high", "first", "at_test"),
    [
        # The first token is a digit of place 0, whose index is 1 + the shift.
        ("abacus:k=9", 1, 10, first_index, 1),
        ("coupling:s=9", 2, 10, first_index, 2),
        # 0 .. rows - N, N = 11 the bound on the sequence's length, so that it always fits.
        ("learned-offset:rows=60", 0, 49, first_index, 0),
        ("bipe:k=9", 0, 9, first_row_of_table, 0),
    ],
)
def test_a_shift_is_uniform_in_training_and_fixed_at_test_time(
    name: str,
    low: int,
    high: int,
    first: Callable[[PositionalEncoding, Sequences], Tensor],
    at_test: int,
) -> None:
    pe, seqs = build(name, SMALL).train(), same_rows()
    drawn: list[int] = first(pe, seqs).tolist()
    assert_uniform(drawn, low, high)
    # The same key gives the same number, wherever its row stands and whatever torch's own state.
    torch.manual_seed(99)
    backwards = replace(seqs, key=seqs.key.flip(0))
    assert first(pe, backwards).flip(0).tolist() == drawn
    assert (first(pe.eval(), seqs) == at_test).all()


@pytest.mark.parametrize(
    "name",
    [
        *("abacus:k=9", "coupling:s=9", "learned-offset", "bipe:k=9", "aug-bipe:k=9"),
        *("aug-rope", "aug-tape-heads", "aug-sinusoidal", "abacus:k=9+aug-xpos"),
    ],
)
def test_one_shift_for_all_tokens_of_a_sequence_packed_or_not(name: str) -> None:
    contract.check_packed(name)
    contract.check_rows(name)


def test_draws_of_different_encodings_are_independent() -> None:
    """Two encodings that are joined must not draw the same, nor what a plain key gives."""
    key = torch.arange(500)
    drawn = [draw(key, 0, 99, stream) for stream in (b"abacus", b"couple", b"bipe", b"")]
    for i, one in enumerate(drawn):
        assert int(one.min()) == 0 and int(one.max()) == 99
        for other in drawn[:i]:
            assert float((one == other).double().mean()) < 0.05


@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((f"{name}+rand-rope", True) for name in ("abacus", "learned-offset:rows=500")),
        *((f"rand-{name}", False) for name in ("learned+rand-rope", "sinusoidal+rand-fire")),
        ("learned-offset:rows=500+rand-learned+rand-alibi", True),
    ],
)
def test_joined_parts_draw_independently(name: str, training: bool) -> None:
    """Nor does a part draw what another draws for the sequence before or behind."""
    pe, seqs = examples.decoder_for(name).pe.train(training), same_rows(3000)
    assert isinstance(pe, Combination)
    drawn = []
    for part in pe.each:
        make = part.indices

        def indices(own: Sequences, make: Callable[[Sequences], Tensor] = make) -> Tensor:
            drawn.append(index := make(own))
            return index

        vars(part)["indices"] = indices
    with torch.no_grad():
        pe.embed(torch.zeros(*seqs.tokens.shape, 16).double(), pe.indices(seqs), seqs)
    assert len(drawn) == len(pe.each)
    for one, other in combinations([index.double() for index in drawn], 2):
        for place, shift in product((0, 3, 6), (-1, 0, 1)):
            both = torch.stack((one[:, place], other[:, place].roll(shift)))
            assert abs(float(torch.corrcoef(both)[0, 1])) < 0.092  # five standard deviations


def test_joined_encodings_share_the_factor_of_their_indices() -> None:
    pe, seqs = examples.decoder_for("aug-sinusoidal+aug-rope").pe.train(), same_rows()
    assert isinstance(pe, Combination)
    (sinusoidal,), rope = pe.embedding, pe.attending
    x = torch.zeros(*seqs.tokens.shape, 16).double()
    assert torch.equal(pe.embed(x, x, seqs), sinusoidal.embed(x, rope.indices(seqs), seqs))


# ---- scaled positions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "a"), [("aug-rope", 2.0), ("aug-tape:a=4", 4.0), ("aug-fire:a=1.5", 1.5)]
)
def test_training_scales_indices_by_one_uniform_number_a_sequence(name: str, a: float) -> None:
    pe, seqs = build(name, SMALL).train(), replace(same_rows(), offset=3)
    index = pe.indices(seqs)
    words = random_words(seqs.key ^ int.from_bytes(b"aug"), 1)[:, 0].tolist()
    for row, word in zip(index.tolist(), words, strict=True):
        alpha = 1 + (a - 1) * word / 2**32
        assert row == [(3 + t) * alpha for t in range(seqs.tokens.shape[1])]
    drawn = (index[:, 0] / 3 - 1) / (a - 1)
    assert_uniform((drawn * 20).long().tolist(), 0, 19)
    assert torch.equal(pe.eval().indices(seqs), 3 + torch.arange(seqs.tokens.shape[1])[None])


def test_all_sequences_of_a_step_may_share_one_number() -> None:
    pe, seqs = build("aug-rope:per=step", SMALL).train(), same_rows()
    drawn = []
    for key in range(400):
        index = pe.indices(replace(seqs, tokens=seqs.tokens[:3], key=seqs.key[:3], batch_key=key))
        assert torch.equal(index, index[:1].expand(3, -1))
        drawn.append(float(index[0, 1]) - 1)
    assert_uniform([int(20 * alpha) for alpha in drawn], 0, 19)
    alone = build("aug-rope", SMALL).train().indices(replace(seqs, key=torch.arange(400)))
    assert drawn == (alone[:, 1] - 1).tolist()


@pytest.mark.parametrize("name", ["rope", "tape", "fire", "alibi", "sinusoidal", "xpos", "bipe"])
def test_only_training_tells_a_scaled_encoding_from_the_plain_one(name: str) -> None:
    both = examples.decoder_for(f"aug-{name}"), examples.decoder_for(name)
    assert max(changes(*both)) == 0
    assert min(changes(*(decoder.train() for decoder in both))) > 0.01


# ---- randomized positions ----------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_indices_are_a_uniform_subset(training: bool) -> None:
    """All 56 subsets of 3 of 0 .. 7 are drawn equally often, in training and at test time."""
    pe = build("rand-rope:l_max=8", setting(trained_length=3, max_length=6)).train(training)
    seqs = replace(same_rows(final_length=3), tokens=same_rows().tokens[:, :3])
    subsets = [tuple(row) for row in pe.indices(seqs).tolist()]
    assert all(a < b < c for a, b, c in subsets)
    numbers = {subset: n for n, subset in enumerate(sorted(set(subsets)))}
    assert len(numbers) == 56
    assert_uniform([numbers[subset] for subset in subsets], 0, 55)
    # A prefix keeps its numbers: they depend on the bound that is known from the prompt.
    prefix = replace(seqs, tokens=seqs.tokens[:, :2])
    assert pe.indices(prefix).tolist() == [list(subset[:2]) for subset in subsets]


@pytest.mark.parametrize("name", RANDOMIZED)
def test_indices_fill_l_max_and_no_more(name: str) -> None:
    pe = build(name, SMALL)
    assert isinstance(pe, Randomized) and pe.l_max == 104
    index = pe.indices(rows_of(52))
    assert index.dtype == torch.int64 and bool((index.diff(dim=1) > 0).all())
    assert int(index.min()) < 6 and 98 < int(index.max()) < 104
    with pytest.raises(UsageError, match=r"l_max=51 .*, 52"):
        build(f"{name}:l_max=51", SMALL)
    with pytest.raises(UsageError, match="61 tokens"):
        build(f"{name}:l_max=60", SMALL).indices(same_rows(2, 61))


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("training", [True, False])
def test_real_indices_are_sorted_independent_numbers(name: str, training: bool) -> None:
    """Uniform in [0, l_max), in training and at test time; padding and bound change none."""
    pe, seqs = build(f"{name}:l_max=60", SMALL).train(training), same_rows()
    index = pe.indices(seqs)
    assert index.dtype == torch.float64 and bool((index.diff(dim=1) > 0).all())
    for key, row in zip(range(20), index.tolist(), strict=False):
        words = sorted(random_words(torch.tensor([key]), FINAL)[0].tolist())
        assert row == pytest.approx([word / 2**32 * 60 for word in words[: len(row)]], rel=1e-12)
    to_the_bound = pe.indices(replace(seqs, tokens=torch.zeros(DRAWS, FINAL, dtype=torch.int64)))
    assert torch.equal(to_the_bound[:, : index.shape[1]], index)
    any_one = to_the_bound.gather(1, random_words(seqs.key, 1, draw=9) % FINAL)[:, 0]
    assert_uniform((any_one / 6).long().tolist(), 0, 9)
    assert 0 <= float(to_the_bound.min()) < 0.1 and 59.9 < float(to_the_bound.max()) < 60
    wider = replace(seqs, bound=30, offset=5)
    torch.testing.assert_close(pe.indices(wider), index + 5, rtol=0, atol=1e-12)


def test_a_table_has_no_real_rows() -> None:
    with pytest.raises(UsageError, match=r"rand-learned.*draw"):
        parse("rand-learned:draw=float")


def rows_of(length: int, count: int = 300) -> Sequences:
    tokens = torch.zeros(count, length, dtype=torch.int64)
    return Sequences(tokens, torch.full((count,), length), torch.arange(count))


@pytest.mark.parametrize("name", [*RANDOMIZED, *REAL])
def test_plain_numbers_make_it_its_plain_twin(name: str) -> None:
    """And nothing else does: in a published suite RandPE is RoPE, bit for bit."""
    decoder, base = examples.decoder_for(name), name.partition(":")[0].removeprefix("rand-")
    twin, weights = examples.decoder_for(base), decoder.state_dict()
    if "pe.table" in weights:
        weights["pe.table"] = weights["pe.table"][: len(twin.state_dict()["pe.table"])]
    twin.load_state_dict(weights)
    assert min(changes(decoder, twin)) > 0.01
    assert max(changes(examples.decoder_for(f"{name}+plain"), twin)) == 0


# ---- numbered anew at test time ----------------------------------------------------------------


def renumbered(name: str, finals: list[int]) -> list[list[int]]:
    seqs = rows_of(52, len(finals))
    rows: list[list[int]] = (
        build(name, SMALL).eval().indices(replace(seqs, final_length=torch.tensor(finals)))
    ).tolist()
    return rows


@pytest.mark.parametrize("name", ["rand-rope", "rand-rope:draw=float"])
@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_training_never_sees_another_numbering(numbering: str, name: str) -> None:
    both = [examples.decoder_for(each) for each in (f"{name}+{numbering}", name)]
    assert min(changes(*both)) > 0.01
    assert max(changes(*(decoder.train() for decoder in both))) == 0


@pytest.mark.parametrize("l_max", [52, 104, 1001])
def test_even_is_the_middle_of_equal_parts(l_max: int) -> None:
    finals = [1, 2, 20, 33, 52]
    for n, row in zip(finals, renumbered(f"rand-rope:l_max={l_max}+even", finals), strict=True):
        assert row[:n] == [int((t + 0.5) * l_max / n) for t in range(n)]
        assert all(a < b for a, b in pairwise(row[:n]))
        assert min(row) >= 0 and max(row) < l_max


def test_another_draw_is_another_independent_subset() -> None:
    """Two draws share as many numbers as chance has them share."""
    assert renumbered("rand-rope+redraw", [20]) == renumbered("rand-rope+redraw:draw=1", [20])
    assert renumbered("rand-rope+redraw", [20]) != renumbered("rand-rope+redraw:draw=2", [20])
    keys, n, l_max = torch.arange(DRAWS), 20, 104
    first, second = (
        random_subset(keys, torch.full((DRAWS,), n), l_max, draw)[:, :n] for draw in (0, 3)
    )
    expected, spread = DRAWS * n / l_max, (DRAWS * n / l_max * (1 - n / l_max)) ** 0.5
    counts = torch.bincount(second.flatten(), minlength=l_max)
    assert float((counts - expected).abs().max()) < 5 * spread
    shared = (first[:, :, None] == second[:, None, :]).sum((1, 2)).double()
    # Hypergeometric: mean n^2 / l_max.
    variance = n * n / l_max * (1 - n / l_max) * (l_max - n) / (l_max - 1)
    assert abs(float(shared.mean()) - n * n / l_max) < 5 * (variance / DRAWS) ** 0.5


def test_another_draw_of_real_numbers_is_real_and_independent() -> None:
    first, second = (
        torch.tensor(renumbered(f"rand-rope:draw=float+redraw:draw={draw}", [20] * 2000))[:, :20]
        for draw in (1, 2)
    )
    assert bool((second.frac() != 0).any(1).all()) and bool((second.diff(dim=1) > 0).all())
    assert abs(float(torch.corrcoef(torch.stack((first.mean(1), second.mean(1))))[0, 1])) < 0.1


# ---- random Fourier features -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tape:start=fourier", "tape-heads:start=fourier"])
def test_fourier_frequencies_are_half_normal_and_no_type_rounds_them(name: str) -> None:
    """|N(0, 1)| radians a token: those of the kernel exp(-distance^2 / 2)."""

    def made(seed: int) -> Rotary:
        torch.manual_seed(seed)
        pe = build(name, wide)
        assert isinstance(pe, Rotary)
        return pe

    wide = setting(num_layers=1, num_heads=1, head_dim=4000)
    pe, other = made(1), made(2)
    theta = pe.frequencies()
    assert theta.dtype == torch.float64 and len(theta) == 2000 and bool((theta > 0).all())
    for distance in (0.5, 1.0, 2.0):
        kernel = float(torch.cos(theta * distance).mean())
        assert abs(kernel - 2.718281828459045 ** (-(distance**2) / 2)) < 0.06
    assert not torch.equal(other.frequencies(), theta)
    other.load_state_dict(pe.state_dict())
    assert torch.equal(other.bfloat16().frequencies(), theta)


# ---- random words: Philox 4x32-10 (Random123, kat_vectors) ---------------------------------------

KNOWN = [
    ("00000000 " * 4, "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text: str) -> list[torch.Tensor]:
    return [torch.tensor([int(word, 16)]) for word in text.split()]


@pytest.mark.parametrize("counter, key, answer", KNOWN)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    a, b, c, d = words(counter)
    k0, k1 = words(key)
    assert list(philox((a, b, c, d), (k0, k1))) == words(answer)


@pytest.mark.parametrize("count", [1, 4, 5, 13])
def test_fewer_words_are_the_first_of_more_whatever_the_other_keys(count: int) -> None:
    keys = torch.arange(5) + 2**62
    assert random_words(keys, count).shape == (5, count)
    assert torch.equal(random_words(keys, count), random_words(keys, 16)[:, :count])
    assert torch.equal(random_words(keys[2:3], count), random_words(keys, count)[2:3])
