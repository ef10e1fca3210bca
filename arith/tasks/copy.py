"""Copy a string of digits."""

from tape_arith.arith.tasks.families.numbers import Digits, Int64
from tape_arith.arith.tasks.families.strings import OneString
from tape_arith.arith.tasks.families.writing import Format


class Copy(OneString):
    """The same string.

    >>> Copy().text("3014")
    '3014=3014'

    hints    a marker before each digit, the same in the prompt and in the answer
    markers  number of different markers
    """

    version = 1
    coupled = "alike"
    example = "3014"

    def __init__(self, *, hints: bool = False, markers: int = 64) -> None:
        super().__init__(Format(hints=hints, markers=markers))

    def answer(self, string: Digits) -> Digits:
        return string

    def answer_digits(self, lengths: Int64) -> Int64:
        return lengths[:, 0]
