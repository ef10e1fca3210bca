"""Even: the randomized range, cut into equal steps."""

import torch
from torch import Tensor

from tape_arith.models.families.randomized import Numbering


class Even(Numbering):
    """Number tokens evenly over the whole range that training drew from, without chance.

    Token t of a sequence that may grow to n tokens gets floor((2t + 1) l_max / (2n)), the middle of
    the t-th of n equal parts of 0 .. l_max - 1. Not in the paper: it tells what chance costs from
    what the spread does.
    """

    kind = "at test time"
    paper = "Ruoss et al. 2023, arXiv 2305.16843"

    def __call__(self, key: Tensor, final_length: Tensor, l_max: int) -> Tensor:
        t = torch.arange(l_max, device=key.device)
        # Past a sequence's end the formula leaves the range, and no table reaches further.
        return ((2 * t + 1) * l_max // (2 * final_length[:, None])).clamp_max(l_max - 1)
