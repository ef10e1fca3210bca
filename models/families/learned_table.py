"""Add learned vectors to token embeddings, by index or by the place of a digit in its number.

In numbers written from their least significant digit on, a digit's place is its place value. No
token's index depends on later tokens.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import INITIAL_STD, PositionalEncoding, Setting, constant
from tape_arith.models.errors import UndefinedEncoding, UsageError
from tape_arith.models.sequences import Sequences, random_words


class LearnedTable(PositionalEncoding):
    """Base: x + table[index], table [rows, D] from N(0, 0.02) like the token embeddings."""

    kind = "absolute"
    no_decay = ("table",)

    def __init__(self, setting: Setting, rows: int) -> None:
        super().__init__(setting)
        self.table = nn.Parameter(torch.randn(rows, setting.hidden_size) * INITIAL_STD)

    def highest_index(self, seqs: Sequences) -> int:
        """Return an upper bound of the indices; a plain number, so nothing waits for the device."""
        return seqs.offset + seqs.width - 1

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        rows, highest = len(self.table), self.highest_index(seqs)
        if highest >= rows:
            raise UsageError(
                f"index {highest} lies past the end of a learned table of {rows} rows "
                f"(0 to {rows - 1}); keep sequences within {rows} tokens or train with more rows"
            )
        return x + F.embedding(index, self.table)


class PlaceTable(LearnedTable, ABC):
    """Base: a learned vector for each place in a number.

    A digit's index is its place, from 1, plus a shift. The shift is `low` at test time; in training
    each sequence draws one from `low` .. `high` by its key. A subclass defines `has_index`, which
    marks the tokens with an index; signs among them have place 0. Other tokens have index 0.

    Raises UndefinedEncoding unless each number is one run of digits, the least significant first.
    """

    kind = "task-structured"

    def __init__(self, setting: Setting, low: int, high: int) -> None:
        if not setting.ascending:
            raise UndefinedEncoding("numbers must begin with their least significant digit")
        if not setting.unbroken:
            raise UndefinedEncoding("no marker or blank may stand between the digits of a number")
        # Any tested sequence fits, even one of digits alone.
        super().__init__(setting, high + setting.max_length + 1)
        self.low, self.high = low, high

    @abstractmethod
    def has_index(self, tokens: Tensor, digits: Tensor) -> Tensor:
        """Mark the tokens that have an index, bool [B, T]; `digits` marks digits."""

    def places(self, digits: Tensor, seqs: Sequences) -> Tensor:
        """Return the place of each digit, 0 for other tokens: int64 [B, T]."""
        return tokens_since(~digits, seqs)

    def trained_reach(self) -> dict[str, int]:
        return {"digits": self.setting.trained_number + self.high - self.low}

    def indices(self, seqs: Sequences) -> Tensor:
        digits = torch.isin(seqs.tokens, constant(self.setting.digit_ids, seqs.tokens))
        shift = torch.full_like(seqs.key, self.low)
        if self.training:
            shift = draw(seqs.key, self.low, self.high, self.stream)
        index = self.places(digits, seqs) + seqs.per_token(shift)
        index = torch.where(self.has_index(seqs.tokens, digits), index, 0)
        last = len(self.table) - 1
        # Usually the shapes alone decide, so that nothing waits for the device.
        fits = seqs.width + (self.high if self.training else self.low) <= last
        if not fits and (most := int(index.max())) > last:
            raise UsageError(
                f"a digit has the index {most}, and the table of {type(self).__name__} ends at "
                f"{last}: score fewer digits, or train with a larger tested_digits"
            )
        return index

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        return x + F.embedding(index, self.table)


def tokens_since(mark: Tensor, seqs: Sequences) -> Tensor:
    """Count the tokens since the last mark, 0 at the mark: bool [B, T] -> int64.

    Before a sequence's first mark the count begins with 1 at the sequence's start.
    """
    column = torch.arange(mark.shape[1], device=mark.device)
    last = torch.where(mark, column, -1).cummax(1).values
    # The last mark may be in the sequence packed before.
    return torch.minimum(column - last, seqs.place + 1)


def draw(key: Tensor, low: int, high: int, stream: bytes) -> Tensor:
    """Draw an integer from low .. high for each key, int64 [n].

    `stream`, at most 7 bytes, makes the draws of joined encodings independent.
    """
    return random_words(key ^ int.from_bytes(stream), 1)[:, 0] % (high - low + 1) + low


def usual_shift(setting: Setting) -> int:
    """Return 1.25 x (n - 1), n the digits of the longest tested number.

    Then training reaches every tested place, even with numbers of one digit.
    """
    return 5 * (setting.longest_number - 1) // 4
