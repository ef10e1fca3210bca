"""Compute the parity of a bit string."""

import numpy as np

from tape_arith.arith.tasks.families.numbers import Digits, Int64
from tape_arith.arith.tasks.families.strings import OneString
from tape_arith.arith.tasks.task import Axis


class Parity(OneString):
    """1 if the number of ones is odd, else 0.

    >>> Parity().text("10110")
    '10110=1'
    """

    version = 1
    axes = (Axis("bits", "bits"),)
    base = 2
    example = "10110"
    chance = 0.5
    needs_positions = False

    def answer(self, string: Digits) -> Digits:
        odd = string.values.sum(axis=1, dtype=np.int64) % 2
        return Digits(odd.astype(np.uint8)[:, None], np.ones_like(string.lengths))

    def answer_digits(self, lengths: Int64) -> Int64:
        return np.ones(len(lengths), np.int64)
