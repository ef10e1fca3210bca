from tape_arith.models.encoding import Setting
from tape_arith.models.families.learned_table import LearnedTable
from tape_arith.models.families.randomized import Randomized, position_range
from tape_arith.models.sequences import Sequences


class RandLearned(Randomized, LearnedTable):
    """Learned embeddings at a sorted random subset of 0 .. l_max - 1.

    T [l_max, D] from N(0, 0.02), without weight decay; training reaches every row, even beyond L0.
    The authors' code draws one subset per batch.

    l_max  number of indices to draw from; by default 2 L1
    """

    label = "Randomized learned"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Gehring et al. 2017, arXiv 1705.03122"
    told_by = "l_max"

    def __init__(self, setting: Setting, *, l_max: int | None = None) -> None:
        self.l_max = position_range(setting, l_max)
        super().__init__(setting, self.l_max)

    def highest_index(self, seqs: Sequences) -> int:
        return seqs.offset + self.l_max - 1
