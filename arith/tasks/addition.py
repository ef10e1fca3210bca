"""Add two numbers of any length."""

from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.carries import draw_chained
from tape_arith.arith.tasks.families.numbers import Digits, Int64, UInt32, added
from tape_arith.arith.tasks.families.two_operands import Operands, TwoOperands, longer
from tape_arith.arith.tasks.families.writing import Field, Format, Writer


class Addition(TwoOperands):
    """The sum of two numbers; a scratchpad writes the carry out of each place before it.

    >>> Addition().text("48+5")
    '84+5=35'
    >>> Addition().text("999+1")
    '999+1=0001'
    >>> Addition(order="plain", pad=True).text("48+5")
    '48+05=53'
    >>> Addition(hints=True).text("48+5")
    'a8b4+a5=a3b5'
    >>> Addition(scratchpad=True).text("48+5")
    '84+5=10>35'

    order       "reversed": from the least significant digit on; "plain": as people write numbers
    pad         zeros up to the longer operand
    hints       a marker before each digit, in the order of places
    markers     number of different markers
    spaces      most blanks at random places of the prompt
    scratchpad  before the answer, the carry out of each place of the longer operand
    """

    version = 1
    coupled = "alike"
    symbol = "+"
    example = "123+45"

    def __init__(
        self,
        *,
        order: Literal["reversed", "plain"] = "reversed",
        pad: bool = False,
        hints: bool = False,
        markers: int = 64,
        spaces: int = 0,
        scratchpad: bool = False,
    ) -> None:
        super().__init__(Format(order, pad, hints, markers, spaces, scratchpad))
        self.symbols = self.step_symbols = ">" if scratchpad else ""

    def answer_digits(self, lengths: Int64) -> Int64:
        return longer(lengths) + 1

    def answer_fields(self, drawn: Operands, write: Writer) -> list[Field]:
        total = write.number(added(*drawn))
        if not self.format.scratchpad:
            return [total]
        return [write.number(_carries(*drawn)), write.symbol(">"), total]

    def answer_bound(self, lengths: Int64) -> Int64:
        steps = longer(lengths) * self.format.tokens_per_digit + 1
        return super().answer_bound(lengths) + (steps if self.format.scratchpad else 0)

    def columns(self, drawn: Operands) -> Int64:
        a, b = drawn
        return a.values.astype(np.int64) + b.values

    def hard_halves(self, most: tuple[int, ...]) -> int:
        return 2 + max(most)

    def draw_hard(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Operands:
        first, second = lengths.T.copy()
        a, b = draw_chained(lengths, halves)
        return Digits(a, first), Digits(b, second)


def _carries(a: Digits, b: Digits) -> Digits:
    """Return the carry out of each place of a + b, for the places of the longer operand."""
    length = np.maximum(a.lengths, b.lengths)
    width = 1 + int(length.max(initial=0))
    # digit of the sum = digit of a + digit of b + carry in - 10 x carry out. Ten is even, so the
    # lowest bit of (digit of the sum - digit of a - digit of b) is the carry in.
    total, first, second = (number.widened(width).values for number in (added(a, b), a, b))
    into = (total - first - second) & 1
    return Digits(np.ascontiguousarray(into[:, 1:]), length)
