"""Plain: 0, 1, 2, ... in place of randomized positions."""

import torch
from torch import Tensor

from tape_arith.models.families.randomized import Numbering


class Plain(Numbering):
    """Number tokens 0, 1, 2, ... as encodings without chance do.

    The paper draws when it evaluates too; some code that followed it numbers plainly then.
    """

    kind = "at test time"
    paper = "Ruoss et al. 2023, arXiv 2305.16843"

    def __call__(self, key: Tensor, final_length: Tensor, l_max: int) -> Tensor:
        return torch.arange(l_max, device=key.device).expand(len(key), -1)
