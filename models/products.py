"""Matrix products as plain numbers: what a count of FLOPs is made of."""

from typing import NamedTuple


class Extent(NamedTuple):
    """What a forward works on.

    tokens     of all rows
    pairs      of a query and a key, summed over rows
    distances  pairs within the longest row: what follows from indices alone is computed once for
               all rows
    """

    tokens: int
    pairs: int
    distances: int


class Product(NamedTuple):
    """A matrix product of so many multiply-adds.

    gradients  how many of its two factors need one: in the backward each costs as much again
    needed     how many multiply-adds would do, where the product computes its numbers several
               times over because that is faster than repeating them; None: all
    """

    multiply_adds: int
    gradients: int = 2
    needed: int | None = None

    @property
    def forward(self) -> int:
        """FLOPs: a multiply-add is two."""
        return 2 * self.multiply_adds

    @property
    def training(self) -> int:
        """FLOPs of forward and backward.

        >>> Product(10).training, Product(10, gradients=1).training
        (60, 40)
        """
        return self.forward * (1 + self.gradients)

    @property
    def useful(self) -> int:
        """FLOPs of forward and backward that are needed.

        >>> Product(10, needed=5).useful, Product(10).useful
        (30, 60)
        """
        return (self if self.needed is None else Product(self.needed, self.gradients)).training
