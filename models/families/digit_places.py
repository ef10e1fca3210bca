"""Where a token stands in its number: what the encodings that know the task look at.

Numbers are written from their least significant digit on, operands and answers alike, so the place
of a digit in its number is its place value. Everything here looks at tokens up to its own.

Legend: B batch, T tokens, D hidden.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.learned_table import LearnedTable
from tape_arith.models.sequences import Sequences, random_words


def tokens_since(mark: Tensor, seqs: Sequences) -> Tensor:
    """Count the tokens since the last marked one, 0 at that one itself: bool [B, T] -> int64.

    Before the first mark of a sequence, count from the place before its first token.
    """
    column = torch.arange(mark.shape[1], device=mark.device)
    last = torch.where(mark, column, -1).cummax(1).values
    # Where sequences are packed, the last mark may be one of a sequence before.
    return torch.minimum(column - last, seqs.place + 1)


def draw(key: Tensor, low: int, high: int, stream: bytes) -> Tensor:
    """Draw a whole number of low .. high for each key, int64 [n].

    `stream`, at most 7 bytes, makes the draws of joined encodings independent.
    """
    return random_words(key ^ int.from_bytes(stream), 1)[:, 0] % (high - low + 1) + low


def operand_digits(setting: Setting) -> int:
    """Estimate the digits of the longest tested operand.

    The longest problem has n + n digits, n + 1 of the answer and three signs, as in addition.
    """
    return max((setting.max_length - 4) // 3, 0)


class PlaceTable(LearnedTable):
    """Base: a learned vector for each place in a number.

    A digit's index is its place in its number, from 1, plus a shift: one a sequence, drawn from
    its key in training out of `low` .. `high`, `low` at test time. A leaf says which tokens have
    an index by `has_index`; signs among them stand at place 0. All others have index 0.
    """

    #: As `draw` takes it.
    stream: ClassVar[bytes]

    def __init__(self, setting: Setting, low: int, high: int) -> None:
        super().__init__(setting)
        self.low, self.high = low, high
        # As many as a run of digits as long as a sequence would take, so that no tested sequence
        # of any task is beyond them.
        self.make_table(high + setting.max_length + 1)
        self.digit_ids: Tensor
        self.register_buffer("digit_ids", torch.tensor(setting.digit_ids), persistent=False)

    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        """Mark the tokens with an index, bool [B, T]; `digits` marks digits."""
        raise NotImplementedError

    def indices(self, seqs: Sequences) -> Tensor:
        digits = torch.isin(seqs.tokens, self.digit_ids)
        shift = torch.full_like(seqs.key, self.low)
        if self.training:
            shift = draw(seqs.key, self.low, self.high, self.stream)
        index = tokens_since(~digits, seqs) + seqs.per_token(shift)
        index = torch.where(self.has_index(seqs.tokens, digits), index, 0)
        self._check(index, seqs)
        return index

    def _check(self, index: Tensor, seqs: Sequences) -> None:
        """Raises UsageError if an index lies beyond the table."""
        last = len(self.table) - 1
        width = seqs.tokens.shape[1] if seqs.starts is None else seqs.longest
        if width + (self.high if self.training else self.low) <= last:
            return  # known from shapes alone: nothing has to wait for the device
        most = int(index.max())
        if most > last:
            raise UsageError(
                f"a digit has the index {most}, and the table of {type(self).__name__} ends at "
                f"{last}: score fewer digits, or train with a larger tested_digits"
            )

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        # The table's end is no matter of the sequence's length: `indices` saw to it.
        return x + F.embedding(index, self.table)
