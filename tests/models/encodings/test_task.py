"""Encodings that know where digits stand: their numbers worked out by hand, and known slips."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build, build_decoder
from tape_arith.models.contract import assert_close, decoder_for, example_batch, forward
from tape_arith.models.decoder import DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.abacus import Abacus
from tape_arith.models.encodings.bipe import BiPE
from tape_arith.models.encodings.coupling import Coupling
from tape_arith.models.errors import UsageError
from tape_arith.models.families import digit_places
from tape_arith.models.families.digit_places import PlaceTable, draw
from tape_arith.models.sequences import Sequences

# Ids that no rule of thumb would find: digits apart from each other, one of them the pad.
DIGITS = (20, 3, 9, 4, 15, 6, 17, 8, 0, 11)
SYMBOLS = {"+": 5, "=": 2, "$": 7, " ": 30} | {str(d): token for d, token in enumerate(DIGITS)}


def setting(max_length: int = 52, trained_length: int = 28) -> Setting:
    return Setting(
        num_layers=2,
        num_heads=2,
        head_dim=8,
        hidden_size=16,
        trained_length=trained_length,
        max_length=max_length,
        digit_ids=DIGITS,
        separator_ids=(SYMBOLS["+"], SYMBOLS["="]),
        end_id=SYMBOLS["$"],
    )


def rows(*texts: str) -> Sequences:
    """Right-padded with spaces; each row another key."""
    width = max(map(len, texts))
    tokens = torch.tensor([[SYMBOLS[c] for c in text.ljust(width)] for text in texts])
    return Sequences(tokens, torch.full((len(texts),), width + 3), torch.arange(len(texts)) + 7)


def packed(*texts: str) -> Sequences:
    """The same sequences end to end."""
    apart = rows(*texts)
    tokens = torch.tensor([[SYMBOLS[c] for c in "".join(texts)]])
    starts = torch.tensor([0, *map(len, texts)]).cumsum(0).to(torch.int32)
    longest = max(map(len, texts))
    return Sequences(tokens, apart.final_length, apart.key, starts=starts, longest=longest)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


# The answer of the third is as long as it can get, by a last carry.
ROWS = ("12+345=753$", "9+1=01$", "99+1=001$", "7")
ABACUS = (
    "1 2 0 1 2 3 0 1 2 3 0",
    "1 0 1 0 1 2 0 0 0 0 0",
    "1 2 0 1 0 1 2 3 0 0 0",
    "1 0 0 0 0 0 0 0 0 0 0",
)
COUPLING = (
    "2 3 1 2 3 4 1 2 3 4 0",
    "2 1 2 1 2 3 0 0 0 0 0",
    "2 3 1 2 1 2 3 4 0 0 0",
    "2 0 0 0 0 0 0 0 0 0 0",
)
# Padding counts on; nobody reads it.
PLACES = (
    "0 1 2 0 1 2 3 0 1 2 3",
    "0 1 0 1 0 1 2 3 4 5 6",
    "0 1 2 0 1 0 1 2 3 4 5",
    "0 1 2 3 4 5 6 7 8 9 10",
)
SEGMENTS = (
    "0 0 0 1 1 1 1 2 2 2 2",
    "0 0 1 1 2 2 2 2 2 2 2",
    "0 0 0 1 1 2 2 2 2 2 2",
    "0 0 0 0 0 0 0 0 0 0 0",
)


def abacus(seqs: Sequences, **options: int) -> Tensor:
    return Abacus(setting(), **options).eval().indices(seqs)


def coupling(seqs: Sequences) -> Tensor:
    return Coupling(setting()).eval().indices(seqs)


def segments(seqs: Sequences) -> Tensor:
    return BiPE(setting()).eval().indices(seqs)


def places_in_segments(seqs: Sequences) -> Tensor:
    """What BiPE adds, read off a table whose rows say which they are."""
    pe = BiPE(setting()).eval()
    with torch.no_grad():
        pe.table.copy_(torch.arange(len(pe.table))[:, None].expand_as(pe.table))
    x = torch.zeros(*seqs.tokens.shape, 16)
    return pe.embed(x, pe.indices(seqs), seqs)[..., 0].long()


CASES = [
    pytest.param(abacus, ABACUS, id="abacus"),
    pytest.param(coupling, COUPLING, id="coupling"),
    pytest.param(segments, SEGMENTS, id="segments of bipe"),
    pytest.param(places_in_segments, PLACES, id="places of bipe"),
]
Numbered = Callable[[Sequences], Tensor]


@pytest.mark.parametrize(("numbered", "by_hand"), CASES)
def test_numbers_worked_by_hand(numbered: Numbered, by_hand: tuple[str, ...]) -> None:
    assert numbered(rows(*ROWS)).tolist() == [numbers(text) for text in by_hand]


@pytest.mark.parametrize("texts", [ROWS, ("7", "", "12+3", "45", "6=", "+1")])
@pytest.mark.parametrize("numbered", [case.values[0] for case in CASES])
def test_packed_sequences_are_numbered_apart(numbered: Numbered, texts: tuple[str, ...]) -> None:
    """Digits on both sides of a border are no number, and a sign closes nothing of the next."""
    together = numbered(packed(*texts))[0].split(list(map(len, texts)))
    for number, text in zip(together, texts, strict=True):
        if text:
            assert torch.equal(number, numbered(rows(text))[0]), text


@pytest.mark.parametrize("numbered", [case.values[0] for case in CASES])
def test_a_number_depends_on_tokens_up_to_it_only(numbered: Numbered) -> None:
    for text in ROWS:
        whole = numbered(rows(text))
        for length in range(1, len(text)):
            assert torch.equal(numbered(rows(text[:length])), whole[:, :length])


def test_equal_places_have_equal_numbers_in_operands_and_answer() -> None:
    """From the least significant digit on; numbered from the other end, 12 and 345 would not meet
    and the answer's numbers would depend on its length."""
    for numbered in (abacus, coupling):
        index = numbered(rows("12+345=753$"))[0]
        assert index[0] == index[3] == index[7] and index[1] == index[4] == index[8]
        assert index[5] == index[9] and index[0] < index[1] < index[5]


def training(pe: PositionalEncoding, count: int = 64) -> tuple[Tensor, Tensor]:
    """Indices of `count` equal rows of different keys in training, and in evaluation."""
    seqs = rows(*["12+345=753$"] * count)
    return pe.train().indices(seqs), pe.eval().indices(seqs)


@pytest.mark.parametrize(("kind", "low"), [(Abacus, 0), (Coupling, 1)])
def test_one_shift_a_sequence_in_training(kind: type[Abacus | Coupling], low: int) -> None:
    pe = kind(setting(), **{"k" if kind is Abacus else "s": 6})
    shifted, plain = training(pe, 300)
    shift = shifted[:, 0] - plain[:, 0] + low
    # Whoever draws one for the batch, or never the least or the largest, is found out.
    counts = torch.bincount(shift, minlength=7)
    assert len(counts) == 7 and bool((counts[low:] > 15).all()) and int(counts[:low].sum()) == 0
    expected = torch.where(plain > 0, plain + (shift - low)[:, None], 0)
    assert torch.equal(shifted, expected)
    again, _ = training(pe, 300)
    assert torch.equal(again, shifted)
    assert torch.equal(plain, plain[:1].expand_as(plain)), "drawn at test time"


def test_bipe_shifts_by_one_number_a_sequence_where_asked_to() -> None:
    seqs = rows(*["12+345=753$"] * 300)
    x = torch.zeros(*seqs.tokens.shape, 16)

    def added(pe: BiPE) -> Tensor:
        with torch.no_grad():
            pe.table.copy_(torch.arange(len(pe.table))[:, None].expand_as(pe.table))
        return pe.embed(x, pe.indices(seqs), seqs)[..., 0].long()

    plain = added(BiPE(setting()).train())
    assert torch.equal(plain, added(BiPE(setting()).eval()))
    pe = BiPE(setting(), k=6)
    assert len(pe.table) == 28 + 6
    assert torch.equal(added(pe.eval()), plain)
    shift = added(pe.train()) - plain
    assert torch.equal(shift, shift[:, :1].expand_as(shift))
    assert torch.equal(shift.unique(), torch.arange(7))


@pytest.mark.parametrize("name", ["abacus", "coupling", "bipe:k=9"])
def test_packing_changes_no_draw(name: str) -> None:
    decoder = decoder_for(name).train()
    seqs = example_batch(rows=3)
    lengths = [20, 3, 11]
    tokens = torch.cat([row[:n] for row, n in zip(seqs.tokens, lengths, strict=True)])[None]
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    bound = seqs.final_length
    together = forward(decoder, Sequences(tokens, bound, seqs.key, starts=starts, longest=20))
    apart = forward(decoder, seqs)
    for row, (length, logits) in enumerate(zip(lengths, together[0].split(lengths), strict=True)):
        assert_close(logits, apart[row, :length], f"packed sequence {row}")


def test_draws_are_their_own() -> None:
    """Two encodings joined to each other must not draw the same, nor what a plain key gives."""
    key = torch.arange(500)
    drawn = [draw(key, 0, 99, stream) for stream in (b"abacus", b"couple", b"bipe", b"")]
    for i, one in enumerate(drawn):
        assert int(one.min()) == 0 and int(one.max()) == 99
        for other in drawn[:i]:
            assert float((one == other).double().mean()) < 0.05


def test_defaults_at_the_presets() -> None:
    """K = 1.25 times the digits of the longest tested operand: 16, 40 and 80."""
    for length, k in ((52, 20), (124, 50), (244, 100)):
        for pe in (Abacus(setting(length)), Coupling(setting(length))):
            assert pe.high == k
            # However long a number, a tested sequence ends before the table does.
            assert len(pe.table) == k + length + 1
    assert Abacus(setting(), k=0).high == 0
    assert len(BiPE(setting()).table) == 28
    assert len(BiPE(setting(), rows=5, k=2).table) == 7


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("abacus:k=-1", "abacus: k must be 0 or more, not -1"),
        ("coupling:s=0", "coupling: s must be 1 or more, not 0"),
        ("bipe:rows=0", "bipe: rows must be 1 or more, not 0"),
        ("bipe:k=-1", "bipe: k must be 0 or more, not -1"),
    ],
)
def test_options_that_are_wrong(name: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(name, setting())
    assert str(caught.value) == told


@pytest.mark.parametrize("other", [1, 40])
@pytest.mark.parametrize("pe", [Abacus(setting(), k=3), Coupling(setting(), s=3)])
def test_a_table_s_end(pe: PlaceTable, other: int) -> None:
    """What is too long is told in one line; what fits, however long the sequence, is not."""
    last = len(pe.table) - 1
    digits = last - pe.low
    pe.eval()
    assert int(pe.indices(rows("1" * digits + "+" + "2" * other)).max()) == last
    with pytest.raises(UsageError, match=f"index {last + 1}, .* ends at {last}: score") as told:
        pe.indices(rows("1" * (digits + 1) + "+" + "2" * other))
    assert "\n" not in str(told.value)


def test_places_past_the_end_share_the_last_row_of_bipe() -> None:
    pe, seqs = BiPE(setting()).eval(), rows("1" * 300)
    added = pe.embed(torch.zeros(1, 300, 16), pe.indices(seqs), seqs)[0]
    assert torch.equal(added[27], added[299]) and not torch.equal(added[26], added[27])


@pytest.mark.parametrize("kind", [Abacus, Coupling])
def test_lengths_that_fit_are_not_read_off_the_device(
    kind: type[Abacus | Coupling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tested sequence fits for its shape alone; `int(tensor)` would wait for a GPU."""

    def waited(self: Tensor) -> int:
        raise AssertionError("a tensor was read")

    pe = kind(setting())
    monkeypatch.setattr(Tensor, "__int__", waited)
    for seqs in (rows("1" * 51), packed("1" * 51, "2" * 51)):
        pe.train().indices(seqs)
        pe.eval().indices(seqs)
    with pytest.raises(AssertionError, match="read"):
        pe.eval().indices(rows("1" * 99))


@pytest.mark.parametrize("name", ["abacus", "coupling"])
def test_a_table_of_zeros_is_nope(name: str) -> None:
    """Attention is left alone; and the table alone makes the difference."""
    ours, nope = decoder_for(name), decoder_for("nope")
    nope.load_state_dict({n: p for n, p in ours.state_dict().items() if not n.startswith("pe.")})
    assert not torch.allclose(forward(ours, example_batch()), forward(nope, example_batch()))
    assert isinstance(ours.pe, PlaceTable)
    with torch.no_grad():
        ours.pe.table.zero_()
    assert torch.equal(forward(ours, example_batch()), forward(nope, example_batch()))


def test_bipe_turns_by_segments() -> None:
    """All tokens of a segment alike, the sign that closes it too."""
    pe, seqs = BiPE(setting()).eval(), rows("12+345=753$")
    by = pe.start(torch.zeros(1, 11, 16), pe.indices(seqs), seqs).diagonal[0, :, 0]
    for first, last in ((0, 2), (3, 6), (7, 10)):
        assert torch.equal(by[first : last + 1], by[first].expand(last - first + 1, -1))
    for last in (2, 6):
        assert not torch.equal(by[last], by[last + 1])


def test_what_is_trained_otherwise() -> None:
    for name in ("abacus", "coupling", "bipe"):
        pe = build(name, setting())
        assert [n for n, _ in pe.named_parameters()] == ["table"]
        (group,) = pe.parameter_groups()
        assert group[0] is pe.table and group[1] == {"weight_decay": 0.0}
        assert 0.015 < float(pe.table.detach().std()) < 0.025


# ---- slips, each of which a test above or the contract must see ---------------------------------


def test_numbering_from_the_most_significant_digit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_the_other_end(mark: Tensor, seqs: Sequences) -> Tensor:
        return HONEST(mark.flip(1), seqs).flip(1)

    HONEST = digit_places.tokens_since
    monkeypatch.setattr(digit_places, "tokens_since", from_the_other_end)
    with pytest.raises(AssertionError):
        test_equal_places_have_equal_numbers_in_operands_and_answer()
    with pytest.raises(AssertionError):
        test_a_number_depends_on_tokens_up_to_it_only(abacus)


def test_numbers_that_run_on_across_sequences_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def merged(mark: Tensor, seqs: Sequences) -> Tensor:
        column = torch.arange(mark.shape[1])
        return column - torch.where(mark, column, -1).cummax(1).values

    monkeypatch.setattr(digit_places, "tokens_since", merged)
    with pytest.raises(AssertionError):
        test_packed_sequences_are_numbered_apart(abacus, ("12+3", "45"))


def test_a_shift_for_the_whole_batch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = digit_places.draw
    monkeypatch.setattr(
        digit_places, "draw", lambda key, *rest: honest(key[:1].expand(len(key)), *rest)
    )
    with pytest.raises(AssertionError):
        test_one_shift_a_sequence_in_training(Abacus, 0)


def test_a_shift_at_test_time_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PlaceTable.indices

    def always(self: PlaceTable, seqs: Sequences) -> Tensor:
        self.training = True
        return honest(self, seqs)

    monkeypatch.setattr(PlaceTable, "indices", always)
    with pytest.raises(AssertionError):
        test_one_shift_a_sequence_in_training(Abacus, 0)
    with pytest.raises(AssertionError):
        test_numbers_worked_by_hand(abacus, ABACUS)


def test_training_reaches_the_places_that_tests_ask_for() -> None:
    """A trained sequence gives gradients to rows up to `high` + its longest number."""
    decoder = build_decoder(DecoderConfig(31, 2, 16, 2, 8, 16), "abacus", setting(), seed=0)
    seqs = rows(*["12+345=753$"] * 300)
    decoder.train()(seqs).square().sum().backward()
    assert isinstance(decoder.pe, Abacus) and decoder.pe.table.grad is not None
    reached = decoder.pe.table.grad.abs().amax(1) > 0
    assert bool(reached[: 20 + 3 + 1].all()) and not bool(reached[20 + 3 + 1 :].any())
