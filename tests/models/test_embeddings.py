"""Numbers of task-structured encodings: worked by hand, and packed sequences numbered apart."""

import pytest
import torch
from torch import Tensor

from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.encodings.abacus import Abacus
from tape_arith.models.encodings.bipe import BiPE
from tape_arith.models.encodings.coupling import Coupling
from tape_arith.models.sequences import Sequences
from tests.helpers.small_decoders import digits, packed_digits, setting

# The answer of the second is as long as it can get, by a last carry.
ROWS = ("12+345=753$", "99+1=001$")
BY_HAND: dict[str, tuple[str, ...]] = {
    "abacus": (
        "1 2 0 1 2 3 0 1 2 3 0",
        "1 2 0 1 0 1 2 3 0 0 0",
    ),
    "coupling": (
        "2 3 1 2 3 4 1 2 3 4 0",
        "2 3 1 2 1 2 3 4 0 0 0",
    ),
    "segments": (
        "0 0 0 1 1 1 1 2 2 2 2",
        "0 0 0 1 1 2 2 2 2 2 2",
    ),
    # Padding counts on; nobody reads it.
    "places": (
        "0 1 2 0 1 2 3 0 1 2 3",
        "0 1 2 0 1 0 1 2 3 4 5",
    ),
}


def number(kind: str, seqs: Sequences) -> Tensor:
    pe: PositionalEncoding
    if kind == "places":  # read off a table whose rows say which they are
        pe = BiPE(setting()).eval()
        table = pe.get_parameter("table")
        table.data = torch.arange(len(table)).float()[:, None].expand_as(table)
        x = torch.zeros(*seqs.tokens.shape, setting().hidden_size)
        return pe.embed(x, pe.indices(seqs), seqs)[..., 0].long()
    kinds = {"abacus": Abacus, "coupling": Coupling, "segments": BiPE}
    pe = kinds[kind](setting())
    return pe.eval().indices(seqs)


@pytest.mark.parametrize("kind", BY_HAND)
def test_numbers_worked_by_hand(kind: str) -> None:
    """Equal places have equal numbers in operands and answer, from the least significant digit.

    Packed, digits on both sides of a border are no number, and a sign closes nothing of the next.
    """
    expected = [[int(word) for word in text.split()] for text in BY_HAND[kind]]
    assert number(kind, digits(*ROWS)).tolist() == expected
    for texts in ((*ROWS, "7"), ("7", "", "12+3", "45", "6=", "+1")):
        together = number(kind, packed_digits(*texts))[0].split(list(map(len, texts)))
        for packed, text in zip(together, texts, strict=True):
            assert not text or torch.equal(packed, number(kind, digits(text))[0]), text
