"""Combine two bit strings bit by bit."""

from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.numbers import Digits, Int64, UInt32, drawn_digits, num_quads
from tape_arith.arith.tasks.families.two_operands import Operands, TwoOperands, longer
from tape_arith.arith.tasks.families.writing import Format
from tape_arith.arith.tasks.task import Axis

_SYMBOLS = {"or": "|", "and": "&", "xor": "^"}
_OPERATIONS = {"or": np.bitwise_or, "and": np.bitwise_and, "xor": np.bitwise_xor}


class Or(TwoOperands):
    """The bitwise OR of two bit strings (McLeish et al. 2024), from their last bits on.

    >>> Or().text("0101|001")
    '1010|100=1010'
    >>> Or(op="xor", pad=True).text("0101^011")
    '1010^1100=0110'

    The last bits are aligned, and the shorter string counts as filled with zeros. The result is as
    long as the longer string. Leading zeros belong to a string.

    op      "or", "and" or "xor"
    pad     zeros up to the longer string
    spaces  most blanks at random places of the prompt
    """

    version = 1
    base = 2
    axes = (Axis("bits of a", "bits_a"), Axis("bits of b", "bits_b"))
    operand = "[01]+"
    writing_rule = ", with bits 0 and 1"

    def __init__(
        self, *, op: Literal["or", "and", "xor"] = "or", pad: bool = False, spaces: int = 0
    ) -> None:
        super().__init__(Format(pad=pad, spaces=spaces))
        self.symbol = self.symbols = _SYMBOLS[op]
        self.example = f"0101{self.symbol}001"
        self.operation = _OPERATIONS[op]

    def answer(self, a: Digits, b: Digits) -> Digits:
        return Digits(self.operation(a.values, b.values), np.maximum(a.lengths, b.lengths))

    def answer_digits(self, lengths: Int64) -> Int64:
        return longer(lengths)

    def words_each(self, most: tuple[int, ...]) -> int:
        return num_quads(max(most))  # a word has two half words: a quad of each string

    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Operands:
        a, b = map(drawn_digits, lengths.T, np.hsplit(halves, 2))
        a.values[:] %= self.base
        b.values[:] %= self.base
        return a, b
