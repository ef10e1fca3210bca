"""Sum digits modulo a number."""

import re

import numpy as np

from tape_arith.arith.tasks.families.numbers import Digits, Int64, without_leading_zeros
from tape_arith.arith.tasks.families.strings import OneString
from tape_arith.arith.tasks.families.writing import Field, Format, Order, Writer, check_range
from tape_arith.arith.tasks.task import Axis


class ModularSum(OneString):
    """The sum of digits modulo m, from its least significant digit on.

    >>> ModularSum().text("3+5+9")
    '3+5+9=7'
    >>> ModularSum(modulus=97).text("9+9")
    '9+9=81'

    modulus  m, 2 to 10,000
    spaces   most blanks at random places of the prompt
    """

    version = 1
    axes = (Axis("terms", "terms"),)
    example = "3+5+9"
    separators = "+="
    digit_order: Order | None = "reversed"
    needs_positions = False

    def __init__(self, *, modulus: int = 10, spaces: int = 0) -> None:
        check_range("modulus", modulus, 2, 10_000)
        super().__init__(Format(spaces=spaces))
        self.modulus = modulus
        # One term reaches ten remainders only. With a larger modulus the best guess gets worse with
        # every term, so that no one number is its chance.
        self.chance = 1 / modulus if modulus <= 10 else 0.0

    def prompt(self, drawn: Digits, write: Writer) -> list[Field]:
        fields = []
        for place in range(int(drawn.lengths.max(initial=0))):
            present = drawn.lengths > place
            if place:
                fields.append(write.symbol("+", present))
            values = np.ascontiguousarray(drawn.values[:, place : place + 1])
            fields.append(write.string(Digits(values, present.astype(np.int64))))
        return fields

    def answer(self, string: Digits) -> Digits:
        sums = string.values.sum(axis=1, dtype=np.int64) % self.modulus
        powers = 10 ** np.arange(len(str(self.modulus - 1)))
        return without_leading_zeros((sums[:, None] // powers % 10).astype(np.uint8))

    def answer_digits(self, lengths: Int64) -> Int64:
        return np.full(len(lengths), len(str(self.modulus - 1)))

    def places(self, lengths: Int64) -> Int64:
        return self.answer_digits(lengths)

    def prompt_bound(self, lengths: Int64) -> Int64:
        return 2 * lengths[:, 0] + self.format.spaces

    def read(self, written: str) -> tuple[Digits, Int64]:
        if not re.fullmatch(r"\d(\+\d)*", written.replace(" ", ""), re.A):
            raise self.not_a_problem(written)
        return super().read(written.replace("+", ""))
