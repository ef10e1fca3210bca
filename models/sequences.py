"""Hold a batch as an encoding's hooks see it; draw random numbers from its sequences' keys.

Legend: B batch, T tokens, H heads, n sequences, L the longest sequence.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class Sequences:
    """A batch of right-padded rows, n = B, or of sequences packed end to end, B = 1.

    tokens        int64 [B, T]
    final_length  int64 [n]  upper bound of each sequence's length, known from its prompt alone,
                  never from padding or the true answer, whose length reveals a last carry
    key           int64 [n]  each sequence's only source of randomness, so that resuming, padding,
                  packing and the number of processes change nothing
    batch_key     key of the first sequence of the whole training batch: the source of randomness
                  that all its sequences share; int64 [1] in a recorded step
    offset        index of the first token (studies of translation shift it)
    attention     computes attention: a `Backend`, which the runner sets; None: in plain products
    watch         called with (i, "state", state), the state that enters block i, then by `Eager`
                  with (i, "weights", weights), the attention weights [B, H, T, T] of block i
                  (packed: [n, H, longest, longest], with values of other sequences past an end)
    bound         upper bound of all final_length, a plain number like `longest`; 0 if unknown
    layer         the current block, counted through all loops; the decoder sets it for `watch`
    last          whether a looped block is applied for the last time; its state is then not read
    query_scale   factor of each query's scores in the current block, [1, T, H or 1]; None: 1
    starts        int32 [n + 1]  start of each packed sequence, then T; None if rows are padded
    longest       upper bound of the lengths of packed sequences; a plain number, so that nothing
                  waits for the device
    """

    tokens: Tensor
    final_length: Tensor
    key: Tensor
    offset: int = 0
    attention: Callable[..., tuple[Tensor, ...]] | None = None
    watch: Callable[[int, str, Any], None] | None = None
    starts: Tensor | None = None
    longest: int = 0
    bound: int = 0
    layer: int = 0
    last: bool = False
    batch_key: int | Tensor = 0
    query_scale: Tensor | None = None

    def at(
        self, layer: int, *, last: bool = False, query_scale: Tensor | None = None
    ) -> "Sequences":
        """Return the batch for block `layer`, which tells `watch` the calling block."""
        if self.watch is None and not last and query_scale is None:
            return self
        # Unlike `replace`, a copy keeps `row` and `place`, which a compiled block cannot compute.
        batch = copy(self)
        vars(batch).update(layer=layer, last=last, query_scale=query_scale)
        return batch

    def scaled(self, q: Tensor) -> Tensor:
        """Multiply queries [B, T, H, K] by their `query_scale`; return q's type.

        Whatever makes scores calls this, after other functions of q: softplus of a multiple, for
        one, is not a multiple of softplus.
        """
        return q if self.query_scale is None else (q * self.query_scale[..., None]).to(q.dtype)

    def show(self, kind: str, value: Any) -> None:
        """Pass the current block's "state" or "weights" to `watch`, if there is one."""
        if self.watch is not None:
            self.watch(self.layer, kind, value)

    @cached_property
    def row(self) -> Tensor:
        """The number of each packed token's sequence, from 0: int64 [1, T]."""
        assert self.starts is not None
        tokens = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return torch.searchsorted(self.starts, tokens.to(self.starts.dtype), right=True)[None] - 1

    @cached_property
    def place(self) -> Tensor:
        """The position of each token in its sequence, from 0: int64 [1, T]."""
        tokens = torch.arange(self.tokens.shape[1], device=self.tokens.device)[None]
        return tokens if self.starts is None else tokens - self.starts[self.row]

    @property
    def log_keys(self) -> Tensor:
        """ln n of each token, n the keys up to itself in its own sequence: float64 [1, T, 1]."""
        return (self.place + 1).to(torch.float64).log()[..., None]

    @property
    def width(self) -> int:
        """Upper bound of the lengths: T if padded, `longest` if packed; a plain number."""
        return self.tokens.shape[1] if self.starts is None else self.longest

    @property
    def cumulative(self) -> tuple[Tensor, int]:
        """`starts` and `longest`; each padded row counts as a sequence of T tokens."""
        if self.starts is not None:
            return self.starts, self.longest
        rows, tokens = self.tokens.shape
        starts = torch.arange(rows + 1, device=self.tokens.device, dtype=torch.int32) * tokens
        return starts, tokens

    def per_token(self, x: Tensor) -> Tensor:
        """Broadcast a value of each sequence, [n, ...], to its tokens: [B, 1 or T, ...]."""
        return x[:, None] if self.starts is None else x[self.row]


def unpack(x: Tensor, seqs: Sequences) -> Tensor:
    """Turn packed sequences [1, T, ...] into rows [n, L, ...].

    Past its end a row holds values of other sequences, which causal attention never reads.
    """
    assert seqs.starts is not None
    columns = torch.arange(seqs.longest, device=x.device)
    source = seqs.starts[:-1, None].long() + columns
    return x[0, source.clamp_max(x.shape[1] - 1)]


def pack(x: Tensor, seqs: Sequences) -> Tensor:
    """Turn rows [n, L, ...] into packed sequences [1, T, ...]."""
    return x[seqs.row[0], seqs.place[0]][None]


def random_words(key: Tensor, count: int, draw: int = 0) -> Tensor:
    """Draw `count` 32-bit words (in int64) for each key: int64 [n] -> int64 [n, count].

    Another `draw` (0 to 2^32 - 1) gives independent words. They depend on key and draw alone;
    torch's generators also depend on resuming, padding and the number of processes.
    """
    blocks = -(-count // 4)
    counter = torch.arange(blocks, device=key.device).expand(len(key), blocks)
    zero = torch.zeros_like(counter)
    number = torch.full_like(counter, draw)
    k = ((key & _LOW)[:, None], ((key >> 32) & _LOW)[:, None])
    return torch.stack(philox((counter, number, zero, zero), k), -1).flatten(1)[:, :count]


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run ten rounds of Philox 4x32 over 32-bit words held in int64; shapes broadcast.

    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
    """
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        # A 64-bit product wraps into the sign bit, which masking after the shift undoes.
        ac, cc = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (cc >> 32) & _LOW ^ b ^ k0, cc & _LOW, (ac >> 32) & _LOW ^ d ^ k1, ac & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return a, b, c, d
