"""Learned embeddings at randomized positions."""

from tape_arith.models.encoding import Setting
from tape_arith.models.families.learned_table import LearnedTable
from tape_arith.models.families.randomized import Randomized
from tape_arith.models.sequences import Sequences


class RandLearned(Randomized, LearnedTable):
    """Learned embeddings at a sorted random subset of 0 .. l_max - 1.

    x_t + T[I_t], where I is the subset and T [l_max, D] from N(0, 0.02), without weight decay. One
    subset a sequence, drawn in training and at test time (one draw a problem). The authors' code
    draws one a batch; the paper does not say. Every row is trained, beyond L0 too. `l_max`
    defaults to 2 L1.
    """

    kind = "randomized"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Gehring et al. 2017, arXiv 1705.03122"

    def __init__(self, setting: Setting, *, l_max: int | None = None) -> None:
        super().__init__(setting)
        self.set_l_max(l_max)
        self.make_table(self.l_max)

    def highest_index(self, seqs: Sequences) -> int:
        return seqs.offset + self.l_max - 1
