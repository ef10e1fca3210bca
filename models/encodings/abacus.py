from torch import Tensor

from tape_arith.models.encoding import Setting, check_least
from tape_arith.models.families.learned_table import PlaceTable, usual_shift


class Abacus(PlaceTable):
    """A learned vector for the place of each digit in its number, least significant first.

    x_t <- x_t + table[p_t], p_t = 1 + u + k for the digit of place value 10^u, in operands and
    answer alike, and 0 for every other token (mcleish7/arithmetic, abacus.py). `table`
    [`k` + L1 + 1, D] starts from N(0, 0.02), without weight decay. In training each sequence draws
    k, uniform in 0 .. `k` (the code draws one per batch); at test time k = 0. Rows beyond `k` + the
    longest trained number are never trained. Attention is NoPE's, in `abacus+fire` FIRE's.

    k  largest shift in training (the authors': 100); by default 1.25 x (n - 1), n the digits of
       the longest tested number

    Defined for unbroken runs of digits, the least significant first, as in the authors' addition,
    multiplication, sorting and bitwise OR. As in their code every run counts as a number: also a
    string of digits, from its beginning on, and the numbers of a scratchpad.
    """

    paper = "McLeish et al. 2024, arXiv 2405.17399"
    told_by = "k"
    stream = b"abacus"

    def __init__(self, setting: Setting, *, k: int | None = None) -> None:
        check_least("abacus", 0, k=k)
        super().__init__(setting, 0, usual_shift(setting) if k is None else k)

    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        return digits
