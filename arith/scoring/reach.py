"""How far an encoding gets: the longest operands it still solves."""

from collections.abc import Sequence
from math import fsum

import numpy as np

from tape_arith.arith.scoring.grid import Grid

SOLVED = (0.9, 0.99)
"""Shares of exact answers from which a length counts as solved."""


def by_length(grids: Sequence[Grid]) -> list[float | None]:
    """Exact match by the digits of the longer operand: entry L - 1 is the mean over the 2 L - 1
    cells whose longer operand has L digits, and over the seeds in `grids`; None where one of these
    cells is missing in any of them."""
    accuracy = np.mean([grid.accuracy for grid in grids], axis=0)
    lengths = np.arange(1, len(accuracy) + 1)
    longer = np.maximum.outer(lengths, lengths)
    shells = [accuracy[longer == length] for length in lengths]
    return [None if np.isnan(shell).any() else fsum(shell) / len(shell) for shell in shells]


def solved_to(grids: Sequence[Grid], share: float) -> int | None:
    """The largest L such that each length up to L is solved: of the sums whose longer operand has
    that length, `share` or more are exact, as `by_length` counts. 0 where not even one digit is;
    None where a missing cell leaves it open.

    A length is a mean over cells, not the worst of them: with 100 problems a cell, an encoding that
    solves 99.6 % everywhere has some cell below 99 %, and the more cells the sooner.
    """
    for length, value in enumerate(by_length(grids), start=1):
        if value is None:
            return None
        # The slack is for the last bit of a mean that is the share exactly.
        if value < share - 1e-12:
            return length - 1
    return grids[0].max_digits
