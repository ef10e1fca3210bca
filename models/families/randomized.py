"""Randomize positions (Ruoss et al. 2023) of any encoding that reads indices.

Ruoss et al. draw whole numbers without replacement. Random Float Sampling (Shimizu et al. 2026,
arXiv 2602.14050) draws real numbers, for encodings that compute with their index as a number.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from tape_arith.models.encoding import (
    MatMul,
    PositionalEncoding,
    Setting,
    Workload,
    check_reaches,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences, pack, random_words


class Randomized(PositionalEncoding):
    """Mixin: number tokens by a random increasing subset of 0 .. l_max - 1.

    Each sequence has one subset of `final_length` members for all layers, drawn by its key in
    training and at test time. The prompt determines the number of members, so that decoding never
    draws again: a prefix of a larger sorted subset is not a smaller sorted subset. A subclass sets
    `l_max` to `position_range(setting, l_max)`; with `real`, to draw sorted real numbers in
    [0, l_max) instead, it computes with its index as a number.
    """

    kind = "randomized"
    l_max: int
    real: bool = False
    computes_with_index = False  # already random
    #: An extrapolation that gives the indices at test time.
    numbering: Callable[["Randomized", Tensor, Tensor], Tensor] | None = None

    def indices(self, seqs: Sequences) -> Tensor:
        longest = seqs.bound or int(seqs.final_length.max())
        if longest > self.l_max:
            raise UsageError(
                f"a sequence may grow to {longest} tokens but positions are drawn from only "
                f"l_max={self.l_max}; choose a larger l_max"
            )
        if self.numbering is None or self.training:
            numbers = self.drawn(seqs.key, seqs.final_length)
        else:
            numbers = self.numbering(self, seqs.key, seqs.final_length)
        numbers = numbers + seqs.offset
        return numbers[:, : seqs.tokens.shape[1]] if seqs.starts is None else pack(numbers, seqs)

    def drawn(self, key: Tensor, final_length: Tensor, draw: int = 0) -> Tensor:
        """Draw the indices of sequences of these keys and final lengths: [n, l_max]."""
        random_indices = random_reals if self.real else random_subset
        return random_indices(key, final_length, self.l_max, draw)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List the encoding's own products, with separate distances for every row."""
        return super().products(extent._replace(distances=extent.pairs))


def position_range(setting: Setting, l_max: int | None) -> int:
    """Return `l_max`, by default 2 L1. Raises UsageError if it is less than L1."""
    check_reaches(setting, l_max=l_max)
    return 2 * setting.max_length if l_max is None else l_max


def random_subset(key: Tensor, final_length: Tensor, l_max: int, draw: int = 0) -> Tensor:
    """Draw for each key a uniform subset of 0 .. l_max - 1 with `final_length` members.

    Returns int64 [n, l_max]: the members in increasing order, then the rest. key and final_length
    are int64 [n].
    """
    # The places of the final_length smallest of l_max random words are such a subset; the sort is
    # stable for ties. A last stable sort moves the members to the front, in increasing order.
    order = random_words(key, l_max, draw).argsort(dim=1, stable=True)
    rank = order.argsort(dim=1)
    unused = (rank >= final_length[:, None]).to(torch.uint8)
    return unused.argsort(dim=1, stable=True)


def random_reals(key: Tensor, final_length: Tensor, l_max: int, draw: int = 0) -> Tensor:
    """Draw for each key `final_length` independent uniform numbers in [0, l_max), and sort them.

    Returns float64 [n, l_max], l_max past a sequence's end; multiples of l_max / 2^32. key and
    final_length are int64 [n].
    """
    uniform = random_words(key, l_max, draw).to(torch.float64) / 2**32
    unused = torch.arange(l_max, device=key.device) >= final_length[:, None]
    return uniform.masked_fill(unused, 1.0).sort(dim=1).values * l_max
