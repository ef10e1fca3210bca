"""Abacus embeddings: a vector for each place of a digit."""

from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.digit_places import PlaceTable, operand_digits


class Abacus(PlaceTable):
    """A learned vector for the place of each digit in its number, least significant first.

    x_t <- x_t + table[p_t], p_t = 1 + u + k for the digit of place value 10^u, in operands and
    answer alike, and 0 for every other token: as in the authors' code (mcleish7/arithmetic,
    abacus.py); the paper's text was not read for it. `table` is [`k` + L1 + 1, D], N(0, 0.02) as
    the embeddings of tokens, without weight decay; row 0 is learned too. In training one k a
    sequence, uniform in 0 .. `k`, drawn from its key (the code draws one a batch); at test time
    k = 0. `k` (100 there) defaults to 1.25 x the digits of the longest tested operand, so that
    every tested place is trained.

    A place beyond `k` + the longest trained number is an untrained row; one beyond the table is an
    error. Attention is NoPE's: `abacus+fire` and `abacus+rope` join it to another. It knows what a
    digit is, and that numbers are written from their least significant digit on.
    """

    kind = "task-structured"
    paper = "McLeish et al. 2024, arXiv 2405.17399"
    stream = b"abacus"

    def __init__(self, setting: Setting, *, k: int | None = None) -> None:
        if k is not None and k < 0:
            raise UsageError(f"abacus: k must be 0 or more, not {k}")
        super().__init__(setting, 0, 5 * operand_digits(setting) // 4 if k is None else k)

    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        return digits
