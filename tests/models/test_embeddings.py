"""What is added to token embeddings: learned tables, and the numbers of task-structured encodings.

Legend: B batch, T tokens, D hidden.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.models.build import build, build_decoder
from tape_arith.models.decoder import DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.encodings.abacus import Abacus
from tape_arith.models.encodings.bipe import BiPE
from tape_arith.models.encodings.coupling import Coupling
from tape_arith.models.errors import UsageError
from tape_arith.models.families import learned_table
from tape_arith.models.families.learned_table import LearnedTable, PlaceTable
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import setting_of

# Ids that no rule of thumb would find: digits apart from each other, one of them the pad.
DIGITS = (20, 3, 9, 4, 15, 6, 17, 8, 0, 11)
SYMBOLS = {"+": 5, "=": 2, "$": 7, " ": 30} | {str(d): token for d, token in enumerate(DIGITS)}
CONFIG = DecoderConfig(31, 2, 16, 2, 8, 16)


def setting(max_length: int = 52) -> Setting:
    return setting_of(
        CONFIG,
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


# ---- numbers worked by hand --------------------------------------------------------------------

# The answer of the third is as long as it can get, by a last carry.
ROWS = ("12+345=753$", "9+1=01$", "99+1=001$", "7")


def number_rows(pe: PositionalEncoding, seqs: Sequences) -> Tensor:
    """What BiPE adds, read off a table whose rows say which they are."""
    table = pe.get_parameter("table")
    with torch.no_grad():
        table.copy_(torch.arange(len(table))[:, None].expand_as(table))
    x = torch.zeros(*seqs.tokens.shape, CONFIG.hidden_size)
    return pe.embed(x, pe.indices(seqs), seqs)[..., 0].long()


def abacus(seqs: Sequences) -> Tensor:
    return Abacus(setting()).eval().indices(seqs)


def coupling(seqs: Sequences) -> Tensor:
    return Coupling(setting()).eval().indices(seqs)


def segments(seqs: Sequences) -> Tensor:
    return BiPE(setting()).eval().indices(seqs)


def places(seqs: Sequences) -> Tensor:
    return number_rows(BiPE(setting()).eval(), seqs)


Numbered = Callable[[Sequences], Tensor]
BY_HAND: dict[Numbered, tuple[str, ...]] = {
    abacus: (
        "1 2 0 1 2 3 0 1 2 3 0",
        "1 0 1 0 1 2 0 0 0 0 0",
        "1 2 0 1 0 1 2 3 0 0 0",
        "1 0 0 0 0 0 0 0 0 0 0",
    ),
    coupling: (
        "2 3 1 2 3 4 1 2 3 4 0",
        "2 1 2 1 2 3 0 0 0 0 0",
        "2 3 1 2 1 2 3 4 0 0 0",
        "2 0 0 0 0 0 0 0 0 0 0",
    ),
    segments: (
        "0 0 0 1 1 1 1 2 2 2 2",
        "0 0 1 1 2 2 2 2 2 2 2",
        "0 0 0 1 1 2 2 2 2 2 2",
        "0 0 0 0 0 0 0 0 0 0 0",
    ),
    # Padding counts on; nobody reads it.
    places: (
        "0 1 2 0 1 2 3 0 1 2 3",
        "0 1 0 1 0 1 2 3 4 5 6",
        "0 1 2 0 1 0 1 2 3 4 5",
        "0 1 2 3 4 5 6 7 8 9 10",
    ),
}


@pytest.mark.parametrize("numbered", BY_HAND)
def test_numbers_worked_by_hand(numbered: Numbered) -> None:
    """Equal places have equal numbers in operands and answer, from the least significant digit."""
    expected = [[int(word) for word in text.split()] for text in BY_HAND[numbered]]
    assert numbered(rows(*ROWS)).tolist() == expected


@pytest.mark.parametrize("texts", [ROWS, ("7", "", "12+3", "45", "6=", "+1")])
@pytest.mark.parametrize("numbered", BY_HAND)
def test_packed_sequences_are_numbered_apart(numbered: Numbered, texts: tuple[str, ...]) -> None:
    """Digits on both sides of a border are no number, and a sign closes nothing of the next."""
    together = numbered(packed(*texts))[0].split(list(map(len, texts)))
    for number, text in zip(together, texts, strict=True):
        if text:
            assert torch.equal(number, numbered(rows(text))[0]), text


@pytest.mark.parametrize("numbered", BY_HAND)
def test_a_number_depends_on_tokens_up_to_it_only(numbered: Numbered) -> None:
    for text in ROWS:
        whole = numbered(rows(text))
        for length in range(1, len(text)):
            assert torch.equal(numbered(rows(text[:length])), whole[:, :length])


@pytest.mark.parametrize("pe", [Abacus(setting(), k=6), Coupling(setting(), s=6)])
def test_training_shifts_what_has_a_number(pe: PlaceTable) -> None:
    seqs = rows(*["12+345=753$"] * 300)
    shifted, plain = pe.train().indices(seqs), pe.eval().indices(seqs)
    shift = shifted[:, :1] - plain[:, :1]
    assert torch.equal(shifted, torch.where(plain > 0, plain + shift, 0))
    # Whoever draws one for the batch, or never the least or the largest, is found out.
    assert shift.unique().tolist() == list(range(6 - pe.low + 1))


def test_slips_of_numbering_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = learned_table.tokens_since

    def from_the_other_end(mark: Tensor, seqs: Sequences) -> Tensor:
        return honest(mark.flip(1), seqs).flip(1)

    def merged(mark: Tensor, seqs: Sequences) -> Tensor:
        column = torch.arange(mark.shape[1])
        return column - torch.where(mark, column, -1).cummax(1).values

    monkeypatch.setattr(learned_table, "tokens_since", from_the_other_end)
    with pytest.raises(AssertionError):
        test_a_number_depends_on_tokens_up_to_it_only(abacus)
    monkeypatch.setattr(learned_table, "tokens_since", merged)
    with pytest.raises(AssertionError):
        test_packed_sequences_are_numbered_apart(abacus, ("12+3", "45"))


def test_bipe_turns_by_segments() -> None:
    """All tokens of a segment alike, the sign that closes it too."""
    pe, seqs = BiPE(setting()).eval(), rows("12+345=753$")
    by = pe.start(torch.zeros(1, 11, 16), pe.indices(seqs), seqs).diagonal[0, :, 0]
    for first, last in ((0, 2), (3, 6), (7, 10)):
        assert torch.equal(by[first : last + 1], by[first].expand(last - first + 1, -1))
    for last in (2, 6):
        assert not torch.equal(by[last], by[last + 1])


# ---- the ends of tables ------------------------------------------------------------------------


def test_training_reaches_the_places_that_tests_ask_for() -> None:
    """A trained sequence gives gradients to rows up to `high` + its longest number."""
    decoder = build_decoder(CONFIG, "abacus", setting(), seed=0)
    decoder.train()(rows(*["12+345=753$"] * 300)).square().sum().backward()
    gradient = decoder.pe.get_parameter("table").grad
    assert gradient is not None
    reached = gradient.abs().amax(1) > 0
    assert bool(reached[: 20 + 3 + 1].all()) and not bool(reached[20 + 3 + 1 :].any())


@pytest.mark.parametrize(("name", "trained"), [("learned", 28), ("learned-offset", 52)])
def test_rows_that_training_reaches(name: str, trained: int) -> None:
    """Of `learned` none beyond the trained length, where it is expected to fail."""
    pe, length = build(name, setting()).train(), 28
    tokens = torch.zeros(400, length, dtype=torch.int64)
    seqs = Sequences(tokens, torch.full((400,), length), torch.arange(400))
    pe.embed(torch.zeros(400, length, 16), pe.indices(seqs), seqs).sum().backward()
    gradient = pe.get_parameter("table").grad
    assert gradient is not None
    assert bool((gradient[:trained] > 0).all()) and not gradient[trained:].any()


@pytest.mark.parametrize("other", [1, 40])
@pytest.mark.parametrize("pe", [Abacus(setting(), k=3), Coupling(setting(), s=3)])
def test_the_end_of_a_place_table(pe: PlaceTable, other: int) -> None:
    """A number that is too long is refused; what fits, however long the sequence, is not."""
    last = len(pe.table) - 1
    digits = last - pe.low
    pe.eval()
    assert int(pe.indices(rows("1" * digits + "+" + "2" * other)).max()) == last
    with pytest.raises(UsageError, match=f"index {last + 1}, .* ends at {last}: score") as caught:
        pe.indices(rows("1" * (digits + 1) + "+" + "2" * other))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [Abacus, Coupling])
def test_lengths_that_fit_are_not_read_off_the_device(
    kind: type[Abacus | Coupling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tested sequence fits for its shape alone; `int(tensor)` would wait for a GPU."""

    def wait(self: Tensor) -> int:
        raise AssertionError("a tensor was read")

    pe = kind(setting())
    monkeypatch.setattr(Tensor, "__int__", wait)
    for seqs in (rows("1" * 51), packed("1" * 51, "2" * 51)):
        pe.train().indices(seqs)
        pe.eval().indices(seqs)
    with pytest.raises(AssertionError, match="read"):
        pe.eval().indices(rows("1" * 99))


def test_places_past_the_end_share_the_last_row_of_bipe() -> None:
    assert number_rows(BiPE(setting()).eval(), rows("1" * 40))[0, 25:].tolist() == [
        *(25, 26),
        *[27] * 13,
    ]


@pytest.mark.parametrize("name", ["learned", "learned-offset", "rand-learned:l_max=52"])
def test_the_end_of_a_learned_table(name: str) -> None:
    pe = build(name, setting()).eval()
    assert isinstance(pe, LearnedTable) and len(pe.table) == 52

    def added(seqs: Sequences) -> Tensor:
        return pe.embed(torch.zeros(*seqs.tokens.shape, 16), pe.indices(seqs), seqs)

    assert added(replace(rows("1" * 52), final_length=torch.tensor([52]))).shape == (1, 52, 16)
    long = replace(packed("1" * 7, "2" * 53), final_length=torch.tensor([7, 52]))
    for seqs in (replace(rows("1" * 50), offset=3), long):
        if "rand" in name and seqs is long:
            continue
        bound = seqs.final_length.clamp_max(52)
        with pytest.raises(UsageError, match=r"index 5\d .* of 52 rows") as caught:
            added(replace(seqs, final_length=bound))
        assert "\n" not in str(caught.value)
    # Many short sequences, packed, are not a long one.
    assert added(packed("1" * 7, "2" * 27, "3" * 26)).shape == (1, 60, 16)
