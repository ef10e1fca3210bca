"""What every hook of an encoding may know of a batch besides its features.

Legend: B batch, T tokens, H heads, n sequences, L the longest of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sequences:
    """A batch of right-padded rows, n = B, or of sequences packed end to end, B = 1.

    tokens        int64 [B, T]
    final_length  int64 [n]  upper bound of each sequence's length, known from its prompt alone;
                  never read off padding or the true answer, whose length would tell of a last carry
    key           int64 [n]  each sequence's only source of randomness, so that resuming, padding,
                  packing and the number of processes change nothing
    offset        index of the first token (studies of translation shift it)
    watch         what studies a forward: it is called with (i, "state", state), the state that
                  enters block i, then with (i, "weights", weights), the weights [B, H, T, T] that
                  block i gathers its values with (packed: [n, H, longest, longest], where what
                  lies past a sequence's end is of another); None otherwise
    weights_too   whether `watch` must hear weights: a backend that never shows them is then an
                  error. Without it they are heard where they are at hand, so that a state can be
                  watched under every backend
    bound         no final_length is greater; a plain number, as `longest`; 0 where nobody told
    layer         the block at work, where `watch` is not None; the decoder keeps it
    starts        int32 [n + 1]  where packed sequences start, and T; None where rows are padded
    longest       where packed: no sequence is longer; a plain number, so that nothing has to wait
                  for the device to learn it
    """

    tokens: Tensor
    final_length: Tensor
    key: Tensor
    offset: int = 0
    watch: Callable[[int, str, Any], None] | None = None
    starts: Tensor | None = None
    longest: int = 0
    weights_too: bool = False
    bound: int = 0
    layer: int = 0

    def at(self, layer: int) -> "Sequences":
        """The batch as block `layer` takes it, so that `watch` learns which block shows something;
        itself where nobody watches."""
        return self if self.watch is None else replace(self, layer=layer)

    def show(self, what: str, value: Any) -> None:
        """Let `watch`, if there is one, see something of the block at work."""
        if self.watch is not None:
            self.watch(self.layer, what, value)

    @cached_property
    def row(self) -> Tensor:
        """Which sequence each packed token is of, int64 [1, T]."""
        assert self.starts is not None
        tokens = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return torch.searchsorted(self.starts, tokens.to(self.starts.dtype), right=True)[None] - 1

    @cached_property
    def place(self) -> Tensor:
        """Which token of its sequence each token is, from 0: int64 [1, T]."""
        tokens = torch.arange(self.tokens.shape[1], device=self.tokens.device)[None]
        return tokens if self.starts is None else tokens - self.starts[self.row]

    @property
    def cumulative(self) -> tuple[Tensor, int]:
        """`starts` and `longest`, of padded rows as well: each is a sequence of T tokens."""
        if self.starts is not None:
            return self.starts, self.longest
        rows, tokens = self.tokens.shape
        starts = torch.arange(rows + 1, device=self.tokens.device, dtype=torch.int32) * tokens
        return starts, tokens

    def per_token(self, x: Tensor) -> Tensor:
        """A value of each sequence, [n, ...], laid beside its tokens: [B, 1 or T, ...]."""
        return x[:, None] if self.starts is None else x[self.row]


def unpack(x: Tensor, seqs: Sequences) -> Tensor:
    """Packed sequences [1, T, ...] as rows [n, L, ...].

    After a row's end stand values of other sequences, which causal attention never reads.
    """
    assert seqs.starts is not None
    columns = torch.arange(seqs.longest, device=x.device)
    source = seqs.starts[:-1, None].long() + columns
    return x[0, source.clamp_max(x.shape[1] - 1)]


def pack(x: Tensor, seqs: Sequences) -> Tensor:
    """Rows [n, L, ...] as packed sequences [1, T, ...]."""
    return x[seqs.row[0], seqs.place[0]][None]
