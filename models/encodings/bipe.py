import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.encoding import Setting, check_least, constant
from tape_arith.models.families.learned_table import LearnedTable, draw, tokens_since
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences


class BiPE(LearnedTable, Rotary):
    """A learned vector for the place in a segment, and RoPE over the segment's number.

    A segment ends with a sign or with the sequence. x_t <- x_t + table[min(p_t, rows - 1)], p_t the
    token's place in its segment, from 0; queries and keys rotate by theta_f x the segment's number,
    from 0 (BiPE-RoPE). `table` [rows, D] starts from N(0, 0.02), without weight decay. Segments and
    clamping follow the authors' code, where a segment is a sentence. Rows beyond the longest
    trained segment are untrained. Defined for every task and format, because all have signs.

    rows  number of distinct places; by default L0, the authors' train_scale
    k     Abacus's random shift, which the paper lacks: `k` more rows, and training uses p_t + u,
          one u per sequence, uniform in 0 .. `k`
    """

    kind = "task-structured"
    paper = "He et al. 2024, arXiv 2401.16421"
    not_rescalable = "it rotates by the segment's number, which does not grow with the length"

    def __init__(self, setting: Setting, *, rows: int | None = None, k: int = 0) -> None:
        check_least("bipe", 1, rows=rows)
        check_least("bipe", 0, k=k)
        super().__init__(setting, (setting.trained_length if rows is None else rows) + k)
        self.k = k

    def trained_reach(self) -> dict[str, int]:
        # A number of n digits, and the sign behind it, have the places 0 to n.
        longest = self.setting.trained_number + self.k
        return {"digits": longest} if longest < len(self.table) - 1 else {}

    def first_of_segment(self, seqs: Sequences) -> Tensor:
        """Mark the first token of each segment: bool [B, T]."""
        closing = torch.isin(seqs.tokens, constant(self.setting.separator_ids, seqs.tokens))
        return F.pad(closing[:, :-1], (1, 0)) | (seqs.place == 0)

    def indices(self, seqs: Sequences) -> Tensor:
        """Number each token's segment; attention rotates by this number."""
        segments = self.first_of_segment(seqs).cumsum(1)
        start = torch.arange(segments.shape[1], device=segments.device) - seqs.place
        return segments - segments.gather(1, start.expand_as(segments)) + seqs.offset

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        place = tokens_since(self.first_of_segment(seqs), seqs)
        if self.training:
            place = place + seqs.per_token(draw(seqs.key, 0, self.k, b"bipe"))
        return x + F.embedding(place.clamp_max(len(self.table) - 1), self.table)
