"""Reverse a string of digits."""

import numpy as np

from tape_arith.arith.tasks.families.numbers import Digits, Int64
from tape_arith.arith.tasks.families.strings import OneString


class Reverse(OneString):
    """The string from its end to its beginning.

    >>> Reverse().text("3014")
    '3014=4103'
    """

    version = 1
    coupled = "mirrored"
    example = "3014"

    def answer(self, string: Digits) -> Digits:
        places = string.lengths[:, None] - 1 - np.arange(string.values.shape[1])
        values = np.take_along_axis(string.values, np.maximum(places, 0), 1) * (places >= 0)
        return Digits(values, string.lengths)

    def answer_digits(self, lengths: Int64) -> Int64:
        return lengths[:, 0]
