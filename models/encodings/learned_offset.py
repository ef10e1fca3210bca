from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.learned import Learned
from tape_arith.models.sequences import Sequences, random_words


class LearnedOffset(Learned):
    """A learned vector for each index, which counts from a random start in training.

    x_t + T[t + o], T as in Learned. In training each sequence draws o from its key, uniform in
    0 .. rows - N, where N bounds its length and is known from the prompt (`final_length`); at test
    time o = 0. So training reaches every row, but no sequence beyond L0. The random start is that
    of the `vanilla` baseline in HanseulJo/position-coupling.

    rows  indices in the table, L1 or more; by default L1
    """

    label = "Learned, offset"
    paper = "Cho et al. 2024, arXiv 2405.20671; Gehring et al. 2017, arXiv 1705.03122"
    told_by = "rows"

    def __init__(self, setting: Setting, *, rows: int | None = None) -> None:
        super().__init__(setting, rows=rows)

    def trained_reach(self) -> dict[str, int]:
        return {}  # of rows, not of sequences

    def indices(self, seqs: Sequences) -> Tensor:
        index = super().indices(seqs)
        if not self.training:
            return index
        starts = (len(self.table) - seqs.offset - seqs.final_length).clamp_min(0) + 1
        # A 32-bit word times the number of starts, divided by 2^32, is in 0 .. starts - 1.
        start = (random_words(seqs.key, 1)[:, 0] * starts) >> 32
        # Only padding can exceed the last row.
        return (index + seqs.per_token(start)).clamp_max(len(self.table) - 1)
