"""Multiply two numbers of any length."""

from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.numbers import Digits, Int64, added, product_columns, products
from tape_arith.arith.tasks.families.two_operands import Operands, TwoOperands
from tape_arith.arith.tasks.families.writing import Field, Format, Writer, check_range


class Multiplication(TwoOperands):
    """The product of two numbers; a scratchpad has partial products and running totals before it.

    >>> Multiplication().text("48x5")
    '84x5=042'
    >>> Multiplication(order="plain", scratchpad=True).text("48x25")
    '48x25=240,960>240,1200'
    >>> Multiplication(b_digits=2).text("123x45")
    '321x54=5355'

    A partial product is a times one digit of b at its place: 48x5, 48x20; a digit 0 gives 0. A
    running total is the sum of the partial products so far, and the last is the answer (Cho et al.
    2024, arXiv 2410.15787).

    With `b_digits` only the length of a grows, as in Cho et al. (2024, arXiv 2405.20671), who
    multiply N digits by two.

    b_digits    fixed number of digits of b; 0: b is as long as a may be
    order       "reversed": from the least significant digit on; "plain": as people write numbers
    pad         zeros up to the longer operand
    spaces      most blanks at random places of the prompt
    scratchpad  partial products and running totals; the last total is the answer
    """

    version = 1
    coupled = "alike"
    symbol = "x"
    example = "123x45"

    def __init__(
        self,
        *,
        b_digits: int = 0,
        order: Literal["reversed", "plain"] = "reversed",
        pad: bool = False,
        spaces: int = 0,
        scratchpad: bool = False,
    ) -> None:
        check_range("b_digits", b_digits, 0, 100)
        super().__init__(Format(order, pad, spaces=spaces, scratchpad=scratchpad))
        self.b_digits = b_digits
        if b_digits:
            self.axes = self.axes[:1]
            self.example = f"123x{('45' * b_digits)[:b_digits]}"
        self.symbols = self.step_symbols = ",>" if scratchpad else ""

    def answer(self, a: Digits, b: Digits) -> Digits:
        return products(a, b)

    def answer_digits(self, lengths: Int64) -> Int64:
        return lengths[:, 0] + lengths[:, 1]

    def operand_lengths(self, lengths: Int64) -> Int64:
        if not self.b_digits:
            return lengths
        return np.column_stack([lengths[:, 0], np.full(len(lengths), self.b_digits)])

    def answer_fields(self, drawn: Operands, write: Writer) -> list[Field]:
        a, b = drawn
        if not self.format.scratchpad:
            return [write.number(self.answer(a, b))]
        width = int(a.lengths.max(initial=0) + b.lengths.max(initial=0))
        ones = np.ones_like(b.lengths)
        total = Digits(np.zeros((len(ones), width), np.uint8), ones)
        partial_products: list[Field] = []
        totals: list[Field] = []
        for place in range(int(b.lengths.max(initial=0))):
            present = b.lengths > place
            a_at_place = Digits(np.pad(a.values, ((0, 0), (place, 0))), a.lengths + place)
            partial = products(a_at_place, Digits(b.values[:, place : place + 1], ones))
            total = added(total, partial.widened(width)).widened(width)
            for fields, number in ((partial_products, partial), (totals, total)):
                if place:
                    fields.append(write.symbol(",", present))
                fields.append(write.number(number.where(present)))
        return [*partial_products, write.symbol(">"), *totals]

    def columns(self, drawn: Operands) -> Int64:
        return product_columns(*drawn)

    def answer_bound(self, lengths: Int64) -> Int64:
        if not self.format.scratchpad:
            return super().answer_bound(lengths)
        first, second = self.operand_lengths(lengths).T
        # Partial products and totals at place p have up to first + p + 1 digits, with a separator.
        digits: Int64 = second * (first + 1) + second * (second - 1) // 2
        return 2 * (digits + second) - 1
