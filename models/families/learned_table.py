"""Encodings that add a learned vector for each index to the token embeddings.

Legend: B batch, T tokens, D hidden, P rows of the table.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import INITIAL_STD, PositionalEncoding
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


class LearnedTable(PositionalEncoding):
    """Base: x + table[index]. A leaf calls `make_table` when it knows how many rows it needs."""

    table: nn.Parameter
    no_decay = ("table",)

    def make_table(self, rows: int) -> None:
        """Draw the table [P, D] from N(0, 0.02), as the decoder draws its own."""
        self.table = nn.Parameter(torch.randn(rows, self.setting.hidden_size) * INITIAL_STD)

    def highest_index(self, seqs: Sequences) -> int:
        """Bound the indices by a plain number, so that nothing waits for the device."""
        longest = seqs.tokens.shape[1] if seqs.starts is None else seqs.longest
        return seqs.offset + longest - 1

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        rows, highest = len(self.table), self.highest_index(seqs)
        if highest >= rows:
            raise UsageError(
                f"index {highest} lies past the end of a learned table of {rows} rows "
                f"(0 to {rows - 1}); keep sequences within {rows} tokens or train with more rows"
            )
        return x + F.embedding(index, self.table)
