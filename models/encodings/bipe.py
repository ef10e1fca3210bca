"""BiPE: positions within a segment, and of segments."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.digit_places import draw, tokens_since
from tape_arith.models.families.learned_table import LearnedTable
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences


class BiPE(LearnedTable, Rotary):
    """A learned vector for the place in a segment, and RoPE over the number of the segment.

    A segment ends with '+', '=' or the end of the sequence; the sign belongs to the segment that
    it closes. x_t <- x_t + table[min(p_t, rows - 1)], p_t the token's place in its segment, from
    0, and queries and keys are turned by theta_f x the segment's number, from 0, all tokens of a
    segment alike (BiPE-RoPE). `table` is [rows, D], N(0, 0.02) as the embeddings of tokens,
    without weight decay; `rows` defaults to L0, the authors' train_scale, and places beyond share
    the last row. It has no other parameters; training and test do the same.

    Rows beyond the longest trained segment are untrained, so that it is expected to fail out of
    distribution: it is Abacus without a random shift, with numbers that begin anew after each
    sign. `k`, not in the paper, adds that shift: in training p_t + u, one u a sequence, uniform in
    0 .. `k`, drawn from its key, 0 at test time; the table then has k more rows. Definition of a
    segment and clamping are the authors' code's, not checked against the paper's formulas; there a
    segment is a sentence.
    """

    kind = "task-structured"
    paper = "He et al. 2024, arXiv 2401.16421"
    not_rescalable = "it turns by the number of the segment, which does not grow with the length"
    separator_ids: Tensor

    def __init__(self, setting: Setting, *, rows: int | None = None, k: int = 0) -> None:
        if rows is not None and rows < 1:
            raise UsageError(f"bipe: rows must be 1 or more, not {rows}")
        if k < 0:
            raise UsageError(f"bipe: k must be 0 or more, not {k}")
        super().__init__(setting)
        self.k = k
        self.make_table((setting.trained_length if rows is None else rows) + k)
        ids = torch.tensor(setting.separator_ids)
        self.register_buffer("separator_ids", ids, persistent=False)

    def first_of_segment(self, seqs: Sequences) -> Tensor:
        """Mark the first token of each segment: bool [B, T]."""
        closing = torch.isin(seqs.tokens, self.separator_ids)
        return F.pad(closing[:, :-1], (1, 0)) | (seqs.place == 0)

    def indices(self, seqs: Sequences) -> Tensor:
        """Number the segments: attention turns by these."""
        segments = self.first_of_segment(seqs).cumsum(1)
        start = torch.arange(segments.shape[1], device=segments.device) - seqs.place
        return segments - segments.gather(1, start.expand_as(segments)) + seqs.offset

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        place = tokens_since(self.first_of_segment(seqs), seqs)
        if self.training:
            place = place + seqs.per_token(draw(seqs.key, 0, self.k, b"bipe"))
        return x + F.embedding(place.clamp_max(len(self.table) - 1), self.table)
