"""Define tasks `a OP b = c` on two numbers."""

import re
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.families.numbers import (
    Digits,
    Int64,
    UInt32,
    digits_of,
    drawn_numbers,
    num_quads,
)
from tape_arith.arith.tasks.families.writing import Field, Writer
from tape_arith.arith.tasks.task import Axis, Task

Operands = tuple[Digits, Digits]


def longer(lengths: Int64) -> Int64:
    """Return the length of the longer operand of each problem: int64[n, 2] to int64[n]."""
    return np.maximum(lengths[:, 0], lengths[:, 1])  # not max(axis=1): 20 times slower


class TwoOperands(Task[Operands]):
    """Base of tasks on two numbers. A subclass defines `symbol`, `answer` and `answer_digits`.

    The digit arrays of both operands have one shape; their lengths may differ. A task whose axes
    are not the lengths of a and b, as with a fixed length of b, defines `operand_lengths`.
    """

    axes: tuple[Axis, ...] = (Axis("digits of a", "digits_a"), Axis("digits of b", "digits_b"))
    symbol: str
    """The operator, one symbol of the vocabulary."""
    writing_rule = ", with numbers from 1 on, without leading zeros"
    operand: ClassVar[str] = "[1-9][0-9]*"
    """The pattern of a written operand."""

    @property
    def separators(self) -> str:  # type: ignore[override]
        return f"{self.symbol}="

    def answer(self, a: Digits, b: Digits) -> Digits:
        """Return the answers. Not needed where `answer_fields` writes other symbols."""
        raise UsageError(f"task {self.name} has no answer: define `answer` or `answer_fields`")

    @abstractmethod
    def answer_digits(self, lengths: Int64) -> Int64:
        """Return the most digits of an answer, int64[n], to operands of int64[n, 2] digits."""

    def operand_lengths(self, lengths: Int64) -> Int64:
        """Return the digits of a and b, int64[n, 2], in problems of lengths int64[n, axes]."""
        return lengths

    def words_each(self, most: tuple[int, ...]) -> int:
        return 1 + num_quads(int(self.operand_lengths(np.array([most])).max()))

    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Operands:
        # Two half words give the leading digits; then each gives four digits, of a and then of b.
        leading, quads = halves[:, :2].T, np.hsplit(halves[:, 2:], 2)
        a, b = map(drawn_numbers, self.operand_lengths(lengths).T, leading, quads)
        return a, b

    def prompt(self, drawn: Operands, write: Writer) -> list[Field]:
        a, b = drawn
        if self.format.pad:
            both = np.maximum(a.lengths, b.lengths)
            a, b = a._replace(lengths=both), b._replace(lengths=both)
        return [write.number(a), write.symbol(self.symbol), write.number(b)]

    def answer_fields(self, drawn: Operands, write: Writer) -> list[Field]:
        return [write.number(self.answer(*drawn))]

    def places(self, lengths: Int64) -> Int64:
        operands = self.operand_lengths(lengths)
        return np.maximum(longer(operands), self.answer_digits(operands))

    def prompt_bound(self, lengths: Int64) -> Int64:
        operands = self.operand_lengths(lengths)
        digits = 2 * longer(operands) if self.format.pad else operands[:, 0] + operands[:, 1]
        return digits * self.format.tokens_per_digit + 2 + self.format.spaces

    def answer_bound(self, lengths: Int64) -> Int64:
        return self.answer_digits(self.operand_lengths(lengths)) * self.format.tokens_per_digit

    def read(self, written: str) -> tuple[Operands, Int64]:
        match = re.fullmatch(
            f" *({self.operand}) *{re.escape(self.symbol)} *({self.operand}) *", written
        )
        if match is None:
            raise self.not_a_problem(written)
        both = digits_of(match.groups())
        lengths = both.lengths[None, : len(self.axes)]
        if (self.operand_lengths(lengths) != both.lengths).any():
            raise self.not_a_problem(written)
        a, b = (Digits(both.values[[side]], both.lengths[[side]]) for side in (0, 1))
        return (a, b), lengths
