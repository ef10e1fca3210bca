"""Write numbers and symbols as tokens, in the format of a task.

n  problems
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.families.numbers import Digits, Int64, UInt8, prefixes
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, MARKERS, Vocabulary

Order = Literal["reversed", "plain"]


@dataclass(frozen=True)
class Format:
    """Options that several tasks share. Each task declares those that make sense for it.

    order       "reversed": digits from the least significant on; "plain": as people write them
    pad         zeros make all operands as long as the longest; the answer has none
    hints       the marker of its place precedes each digit, from a random marker on
                (Zhou et al. 2023, "What Algorithms can Transformers Learn?", index hints)
    markers     number of different markers, and so the most digits of a number
    spaces      most blanks, at random places of the prompt (McLeish et al. 2024)
    scratchpad  the steps of the calculation precede the answer

    Raises UsageError for values out of range.
    """

    order: Order = "reversed"
    pad: bool = False
    hints: bool = False
    markers: int = 64
    spaces: int = 0
    scratchpad: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.markers <= len(MARKERS):
            raise UsageError(f"markers={self.markers}: hints have 1 to {len(MARKERS)} markers")
        if self.markers != Format.markers and not self.hints:
            raise UsageError(f"markers={self.markers} does nothing without hints=true: add that")
        check_range("spaces", self.spaces, 0, 100)

    @property
    def symbols(self) -> str:
        """The markers that the vocabulary of the task needs."""
        return MARKERS[: self.markers] if self.hints else ""

    @property
    def tokens_per_digit(self) -> int:
        return 2 if self.hints else 1


def check_range(option: str, value: int, least: int, most: int) -> None:
    """Raise UsageError if the value of an option is out of its range."""
    if not least <= value <= most:
        raise UsageError(f"{option}={value}: give {least} to {most:,}")


class Field(NamedTuple):
    """A part of n problems: tokens [n, width], PAD where there is none, and their number."""

    tokens: UInt8
    lengths: Int64


@dataclass(frozen=True)
class Writer:
    """Writes the parts of n problems as tokens.

    first_markers  int64[n]: the marker of the first place, counted from 0
    """

    format: Format
    vocabulary: Vocabulary
    first_markers: Int64

    def symbol(self, symbol: str, present: npt.NDArray[np.bool_] | None = None) -> Field:
        """Write a symbol in all problems, or only where it is `present`."""
        lengths = np.ones(len(self.first_markers), np.int64)
        if present is not None:
            lengths *= present
        return Field((lengths * self.vocabulary.token(symbol)).astype(np.uint8)[:, None], lengths)

    def number(self, digits: Digits) -> Field:
        """Write numbers in the format's order; a number without digits is left out."""
        return self._written(digits, self.format.order == "plain")

    def string(self, digits: Digits) -> Field:
        """Write digits in their own order, in any format."""
        return self._written(digits, False)

    def _written(self, digits: Digits, backwards: bool) -> Field:
        self._check(digits)
        width = int(digits.lengths.max(initial=0))
        lengths, present = digits.lengths, prefixes(width).take(digits.lengths, axis=0)
        tokens = digits.values[:, :width] + np.uint8(DIGIT_ZERO) * present
        if self.format.hints:
            first = self.vocabulary.token(MARKERS[0]) + self.first_markers
            markers = (first[:, None] + np.arange(width)).astype(np.uint8)
            pairs = np.stack([markers * present, tokens], axis=2)
            pairs = pairs[:, ::-1] if backwards else pairs
            return Field(pairs.reshape(len(lengths), 2 * width), 2 * lengths)
        return Field(tokens[:, ::-1] if backwards else tokens, lengths)

    def _check(self, digits: Digits) -> None:
        """Raise UsageError unless `digits` are Digits of n numbers."""
        count, parts = len(self.first_markers), type(digits).__name__
        if isinstance(digits, Digits):
            values, lengths = map(np.asarray, digits)
            integers = {values.dtype.kind, lengths.dtype.kind} <= {"i", "u"}
            if integers and values.ndim == 2 and (len(values), lengths.shape) == (count, (count,)):
                return
            shapes = [f"{part.dtype}{list(part.shape)}" for part in (values, lengths)]
            parts = f"Digits({', '.join(shapes)})"
        raise UsageError(
            f"numbers of {count} problems are Digits(uint8[{count}, width], int64[{count}]), not "
            f"{parts}"
        )
