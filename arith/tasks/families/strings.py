"""Define tasks on one string of digits or bits, which has no most significant end."""

import re
from abc import abstractmethod

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.families.numbers import (
    Digits,
    Int64,
    UInt32,
    digits_of,
    drawn_digits,
    num_quads,
)
from tape_arith.arith.tasks.families.writing import Field, Order, Writer
from tape_arith.arith.tasks.task import Axis, Task


class OneString(Task[Digits]):
    """Base of tasks on one string. A subclass defines `answer` and `answer_digits`.

    Digit k of `values` is digit k of the string, from the left.
    """

    axes: tuple[Axis, ...] = (Axis("digits", "digits"),)
    digit_order: Order | None = None

    def answer(self, string: Digits) -> Digits:
        """Return the answers. Not needed where `answer_fields` writes other symbols."""
        raise UsageError(f"task {self.name} has no answer: define `answer` or `answer_fields`")

    @abstractmethod
    def answer_digits(self, lengths: Int64) -> Int64:
        """Return the most digits of an answer, int64[n], to strings of int64[n, 1] digits."""

    def words_each(self, most: tuple[int, ...]) -> int:
        return -(-num_quads(most[0]) // 2)

    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Digits:
        string = drawn_digits(lengths[:, 0], halves)
        string.values[:] %= self.base  # all equally likely, for a base of 2, 5 or 10
        return string

    def prompt(self, drawn: Digits, write: Writer) -> list[Field]:
        return [write.string(drawn)]

    def answer_fields(self, drawn: Digits, write: Writer) -> list[Field]:
        return [write.string(self.answer(drawn))]

    def places(self, lengths: Int64) -> Int64:
        return np.maximum(lengths[:, 0], self.answer_digits(lengths))

    def prompt_bound(self, lengths: Int64) -> Int64:
        return lengths[:, 0] * self.format.tokens_per_digit + 1 + self.format.spaces

    def answer_bound(self, lengths: Int64) -> Int64:
        return self.answer_digits(lengths) * self.format.tokens_per_digit

    def read(self, written: str) -> tuple[Digits, Int64]:
        digits = written.replace(" ", "")
        if not re.fullmatch(f"[0-{self.base - 1}]+", digits):
            raise self.not_a_problem(written)
        string = digits_of([digits[::-1]])
        return string, string.lengths[None]
