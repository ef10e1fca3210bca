"""Randomized positions (Ruoss et al. 2023): any encoding, with other indices.

Legend: B batch, T tokens.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from tape_arith.models.encoding import Extrapolation, MatMul, PositionalEncoding, Workload
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences, pack, random_words


class Randomized(PositionalEncoding):
    """Mixin: tokens are numbered by a random increasing subset of 0 .. l_max - 1.

    The subset has `final_length` members, uniform among all such subsets, drawn from the row's
    key in training and at test time alike: known from the prompt, so that decoding never has to
    draw again (a prefix of a larger sorted subset is not a smaller sorted subset). One subset a
    sequence, shared by its layers.
    """

    l_max: int
    numbering: "Numbering | None" = None
    """Other indices at test time only."""

    def set_l_max(self, l_max: int | None) -> None:
        """Take `l_max` of the user, or twice the longest tested sequence."""
        longest = self.setting.max_length
        self.l_max = 2 * longest if l_max is None else l_max
        if self.l_max < longest:
            raise UsageError(
                f"l_max={self.l_max} is less than the longest tested sequence, {longest} tokens; "
                f"choose l_max >= {longest}"
            )

    def indices(self, seqs: Sequences) -> Tensor:
        longest = seqs.bound or int(seqs.final_length.max())
        if longest > self.l_max:
            raise UsageError(
                f"a sequence may grow to {longest} tokens but positions are drawn from only "
                f"l_max={self.l_max}; choose a larger l_max"
            )
        if self.numbering is not None and not self.training:
            numbers = self.numbering(seqs.key, seqs.final_length, self.l_max)
        else:
            numbers = random_subset(seqs.key, seqs.final_length, self.l_max)
        numbers = numbers + seqs.offset
        return numbers[:, : seqs.tokens.shape[1]] if seqs.starts is None else pack(numbers, seqs)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """Count the products of the encoding itself; every row has distances of its own."""
        return super().products(extent._replace(distances=extent.pairs))


def random_subset(key: Tensor, final_length: Tensor, l_max: int, draw: int = 0) -> Tensor:
    """Of each key a uniform subset of 0 .. l_max - 1 with `final_length` members, increasing, and
    behind them the rest: int64 [n], int64 [n] -> int64 [n, l_max]."""
    # The final_length smallest of l_max random words are such a subset; a stable sort settles
    # ties, and moving the members to the front in order numbers the tokens.
    order = random_words(key, l_max, draw).argsort(dim=1, stable=True)
    rank = order.argsort(dim=1)
    unused = (rank >= final_length[:, None]).to(torch.uint8)
    return unused.argsort(dim=1, stable=True)


class Numbering(Extrapolation):
    """Base of what numbers the tokens of a randomized encoding in another way than training did."""

    def __call__(self, key: Tensor, final_length: Tensor, l_max: int) -> Tensor:
        """The numbers of each sequence's tokens, below l_max: int64 [n, l_max], of which the first
        `final_length` count, from key int64 [n] and final_length int64 [n] (tokens)."""
        raise NotImplementedError

    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        if isinstance(encoding, Randomized):
            return None
        return f"numbers randomized positions anew; {type(encoding).__name__} has none"

    def apply(self, encoding: PositionalEncoding) -> None:
        assert isinstance(encoding, Randomized)
        encoding.numbering = self
