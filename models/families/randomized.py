"""Randomized positions (Ruoss et al. 2023): any encoding, with other indices.

Legend: B batch, T tokens.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from models.encoding import PositionalEncoding
from models.errors import UsageError
from models.packing import pack
from models.philox import words
from models.products import Extent, Product
from models.sequences import Sequences


class Randomized(PositionalEncoding):
    """Mixin: tokens are numbered by a random increasing subset of 0 .. l_max - 1.

    The subset has `final_length` members, uniform among all such subsets, drawn from the row's
    key in training and at test time alike: known from the prompt, so that decoding never has to
    draw again (a prefix of a larger sorted subset is not a smaller sorted subset). One subset a
    sequence, shared by its layers.
    """

    l_max: int

    def set_l_max(self, l_max: int | None) -> None:
        """`l_max` of the user, or twice the longest tested sequence."""
        longest = self.setting.max_length
        self.l_max = 2 * longest if l_max is None else l_max
        if self.l_max < longest:
            raise UsageError(
                f"l_max={self.l_max} is less than the longest tested sequence, {longest} tokens; "
                f"choose l_max >= {longest}"
            )

    def indices(self, seqs: Sequences) -> Tensor:
        longest = int(seqs.final_length.max())
        if longest > self.l_max:
            raise UsageError(
                f"a sequence may grow to {longest} tokens but positions are drawn from only "
                f"l_max={self.l_max}; choose a larger l_max"
            )
        # The final_length smallest of l_max random words are a uniform subset; a stable sort
        # settles ties, and moving the members to the front in order numbers the tokens.
        order = words(seqs.key, self.l_max).argsort(dim=1, stable=True)
        rank = order.argsort(dim=1)
        unused = (rank >= seqs.final_length[:, None]).to(torch.uint8)
        drawn = unused.argsort(dim=1, stable=True) + seqs.offset
        return drawn[:, : seqs.tokens.shape[1]] if seqs.starts is None else pack(drawn, seqs)

    def products(self, extent: Extent) -> Iterable[Product]:
        """Those of the encoding itself, where every row has distances of its own."""
        return super().products(extent._replace(distances=extent.pairs))
