"""Define tasks on a list of numbers.

n  problems      K  numbers of the longest list      W  places of the longest number
"""

import re
from typing import NamedTuple

import numpy as np

from tape_arith.arith.tasks.families.numbers import (
    Digits,
    Int64,
    UInt8,
    UInt32,
    digits_of,
    drawn_numbers,
    num_quads,
)
from tape_arith.arith.tasks.families.random_words import below
from tape_arith.arith.tasks.families.writing import Field, Writer
from tape_arith.arith.tasks.task import Axis, Task


class NumberList(NamedTuple):
    """Lists of numbers: digit w of number k of list r is `values[r, k, w]`."""

    values: UInt8
    """uint8[n, K, W]"""
    lengths: Int64
    """int64[n, K]: digits of each number; 0 where the list has no such number"""

    @property
    def counts(self) -> Int64:
        """Count the numbers of each list: int64[n]."""
        return np.count_nonzero(self.lengths, axis=1)

    def number(self, k: int) -> Digits:
        """Return number k of each list."""
        return Digits(np.ascontiguousarray(self.values[:, k]), self.lengths[:, k])


class ListOfNumbers(Task[NumberList]):
    """Base of tasks on a list. A subclass defines `symbol`, `answer_fields`, `places` and a bound.

    In a problem of k numbers and d digits one number, any of the k, has d digits; the others have 1
    to d, all equally likely.
    """

    axes: tuple[Axis, ...] = (
        Axis("operands", "operands", counts="operands", shortest=2),
        Axis("digits", "digits"),
    )
    writing_rule = ", with numbers from 1 on, without leading zeros"
    symbol: str
    """The symbol between two numbers."""

    @property
    def separators(self) -> str:  # type: ignore[override]
        return f"{self.symbol}="

    def words_each(self, most: tuple[int, ...]) -> int:
        numbers, digits = most
        return -(-(1 + numbers * (2 + num_quads(digits))) // 2)

    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> NumberList:
        # One half word decides which number is longest; then each number has one for its length,
        # one for its leading digit, and one for each four digits.
        counts, digits = lengths.T.copy()
        each = 2 + num_quads(most[1])
        longest = below(counts, halves[:, 0])
        values, number_lengths = [], []
        for k in range(most[0]):
            own = halves[:, 1 + k * each : 1 + (k + 1) * each]
            length = np.where(longest == k, digits, 1 + below(digits, own[:, 0]))
            number = drawn_numbers(length, own[:, 1], own[:, 2:]).where(counts > k)
            values.append(number.values)
            number_lengths.append(number.lengths)
        return NumberList(np.stack(values, axis=1), np.stack(number_lengths, axis=1))

    def prompt(self, drawn: NumberList, write: Writer) -> list[Field]:
        if self.format.pad:
            longest = drawn.lengths.max(axis=1, initial=0)[:, None]
            drawn = drawn._replace(lengths=np.where(drawn.lengths > 0, longest, 0))
        return self.listed(drawn, write)

    def listed(self, numbers: NumberList, write: Writer) -> list[Field]:
        """Write numbers with the task's symbol between them."""
        fields = []
        for k in range(numbers.values.shape[1]):
            number = numbers.number(k)
            if k:
                fields.append(write.symbol(self.symbol, number.lengths > 0))
            fields.append(write.number(number))
        return fields

    def prompt_bound(self, lengths: Int64) -> Int64:
        counts, digits = lengths.T
        return counts * (digits * self.format.tokens_per_digit + 1) + self.format.spaces

    def read(self, written: str) -> tuple[NumberList, Int64]:
        numbers = [text.strip(" ") for text in written.split(self.symbol)]
        if len(numbers) < 2 or not all(re.fullmatch("[1-9][0-9]*", text) for text in numbers):
            raise self.not_a_problem(written)
        digits = digits_of(numbers)
        lengths = np.array([[len(numbers), int(digits.lengths.max())]])
        return NumberList(digits.values[None], digits.lengths[None]), lengths
