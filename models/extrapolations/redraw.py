"""Redraw: another random subset than the first."""

from torch import Tensor

from tape_arith.models.errors import UsageError
from tape_arith.models.families.randomized import Numbering, random_subset


class Redraw(Numbering):
    """Number tokens by another draw of the random subset: what one draw's luck is worth.

    Draws are independent; draw 0 is the encoding's own. A grid holds one draw: averaging several
    would leave counts that are not binomial, so the mean over draws is taken of their grids.
    """

    kind = "at test time"
    paper = "Ruoss et al. 2023, arXiv 2305.16843"

    def __init__(self, *, draw: int = 1) -> None:
        if not 1 <= draw < 2**32:
            raise UsageError(f"redraw: draw must be from 1 to {2**32 - 1}, not {draw}")
        self.draw = draw

    def __call__(self, key: Tensor, final_length: Tensor, l_max: int) -> Tensor:
        return random_subset(key, final_length, l_max, self.draw)
