"""Subtract two numbers of any length."""

from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.carries import draw_chained
from tape_arith.arith.tasks.families.numbers import Digits, Int64, UInt32, differences
from tape_arith.arith.tasks.families.random_words import below
from tape_arith.arith.tasks.families.two_operands import Operands, TwoOperands, longer
from tape_arith.arith.tasks.families.writing import Field, Format, Writer


class Subtraction(TwoOperands):
    """The difference of two numbers; if negative, its last symbol (plain order: first) is a minus.

    >>> Subtraction().text("48-5")
    '84-5=34'
    >>> Subtraction().text("5-48")
    '5-84=34-'
    >>> Subtraction(order="plain").text("5-48")
    '5-48=-43'

    order    "reversed": from the least significant digit on; "plain": as people write numbers
    pad      zeros up to the longer operand
    hints    a marker before each digit, in the order of places
    markers  number of different markers
    spaces   most blanks at random places of the prompt
    """

    version = 1
    coupled = "alike"
    symbol = "-"
    example = "123-45"

    def __init__(
        self,
        *,
        order: Literal["reversed", "plain"] = "reversed",
        pad: bool = False,
        hints: bool = False,
        markers: int = 64,
        spaces: int = 0,
    ) -> None:
        super().__init__(Format(order, pad, hints, markers, spaces))

    def answer_digits(self, lengths: Int64) -> Int64:
        return longer(lengths)

    def answer_fields(self, drawn: Operands, write: Writer) -> list[Field]:
        difference, negative = differences(*drawn)
        fields = [write.number(difference), write.symbol("-", negative)]
        return fields[::-1] if self.format.order == "plain" else fields

    def answer_bound(self, lengths: Int64) -> Int64:
        return super().answer_bound(lengths) + 1

    def columns(self, drawn: Operands) -> Int64:
        a, b = drawn
        negative = differences(a, b)[1]
        # The smaller number is subtracted from the larger one, as on paper.
        return (a.values.astype(np.int64) - b.values) * np.where(negative, -1, 1)[:, None]

    def hard_halves(self, most: tuple[int, ...]) -> int:
        return 3 + max(most)

    def draw_hard(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Operands:
        # The first half word decides which of two operands of equal length is larger.
        first, second = lengths.T.copy()
        swapped = ((first < second) | ((first == second) & (below(2, halves[:, 0]) > 0)))[:, None]
        ordered = np.where(swapped, lengths[:, ::-1], lengths)
        larger, smaller = draw_chained(ordered, halves[:, 1:], sign=-1)
        a, b = np.where(swapped, smaller, larger), np.where(swapped, larger, smaller)
        return Digits(a, first), Digits(b, second)
