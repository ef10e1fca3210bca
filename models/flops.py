"""Matrix products as plain numbers, which a count of FLOPs adds up."""

from typing import NamedTuple


class Workload(NamedTuple):
    """How much a forward computes.

    tokens     over all rows
    pairs      of a query and a key, over all rows
    distances  pairs within the longest row; functions of indices alone are computed once for all
    """

    tokens: int
    pairs: int
    distances: int


class MatMul(NamedTuple):
    """A matrix product of so many multiply-adds.

    gradients  how many of its two factors need a gradient, each of which costs as much again
    needed     multiply-adds without repeated work, if repeating is faster than sharing; None: all
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

        >>> MatMul(10).training, MatMul(10, gradients=1).training
        (60, 40)
        """
        return self.forward * (1 + self.gradients)

    @property
    def useful(self) -> int:
        """FLOPs of forward and backward that are needed.

        >>> MatMul(10, needed=5).useful, MatMul(10).useful
        (30, 60)
        """
        return (self if self.needed is None else MatMul(self.needed, self.gradients)).training
