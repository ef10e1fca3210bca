"""Add several numbers of any length."""

from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.carries import draw_chained
from tape_arith.arith.tasks.families.lists import ListOfNumbers, NumberList
from tape_arith.arith.tasks.families.numbers import Digits, Int64, UInt32, added
from tape_arith.arith.tasks.families.writing import Field, Format, Writer


class Sum(ListOfNumbers):
    """The sum of two or more numbers; a scratchpad has the running totals before it.

    >>> Sum().text("12+5+7")
    '21+5+7=42'
    >>> Sum(scratchpad=True).text("12+5+7")
    '21+5+7=71>42'

    The running totals are those of the first two numbers, the first three and so on; the last is
    the answer (Cho et al. 2024, arXiv 2410.15787).

    order       "reversed": from the least significant digit on; "plain": as people write numbers
    pad         zeros up to the longest operand
    hints       a marker before each digit, in the order of places
    markers     number of different markers
    spaces      most blanks at random places of the prompt
    scratchpad  the running totals; the last is the answer
    """

    version = 1
    coupled = "alike"
    symbol = "+"
    example = "12+5+7"

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

    def answer_fields(self, drawn: NumberList, write: Writer) -> list[Field]:
        totals = self._totals(drawn)
        if not self.format.scratchpad:
            return [write.number(totals[-1])]
        fields = [write.number(totals[0])]
        for number, total in enumerate(totals[1:], start=2):
            present = drawn.counts > number
            fields += [write.symbol(">", present), write.number(total.where(present))]
        return fields

    def columns(self, drawn: NumberList) -> Int64:
        most = drawn.values.shape[1]
        return np.pad(drawn.values.sum(axis=1, dtype=np.int64), ((0, 0), (0, len(str(most)))))

    def hard_halves(self, most: tuple[int, ...]) -> int:
        return 2 * self.words_each(most) + 2 + most[1]

    def draw_hard(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> NumberList:
        # The digits of a longest number and of the next one are drawn again, given the columns of
        # the other numbers.
        counts, digits = lengths.T
        usual = 2 * self.words_each(most)
        drawn, rows = self.draw(lengths, halves[:, :usual], most), np.arange(len(lengths))
        longest = np.argmax(drawn.lengths == digits[:, None], axis=1)
        pair = rows[:, None], np.stack([longest, (longest + 1) % counts], axis=1)
        drawn.values[pair] = 0
        other_columns = drawn.values.sum(axis=1, dtype=np.int64)
        chained = draw_chained(drawn.lengths[pair], halves[:, usual:], other_columns)
        drawn.values[(*pair, slice(most[1]))] = np.stack(chained, axis=1)
        return drawn

    def _totals(self, drawn: NumberList) -> list[Digits]:
        """Return the sums of the first two numbers, the first three, and so on."""
        _, most, width = drawn.values.shape
        width += len(str(most))
        totals = [drawn.number(0)]
        for k in range(1, most):
            totals.append(added(totals[-1].widened(width), drawn.number(k).widened(width)))
        return totals[1:]

    def places(self, lengths: Int64) -> Int64:
        return self._total_digits(lengths[:, 0], lengths[:, 1])

    def answer_bound(self, lengths: Int64) -> Int64:
        counts, digits = lengths.T
        last = self._total_digits(counts, digits) * self.format.tokens_per_digit
        if not self.format.scratchpad:
            return last
        return (counts - 1) * (last + 1) - 1

    def _total_digits(self, counts: Int64, digits: Int64) -> Int64:
        """Return the most digits of a sum of `counts` numbers: below counts x 10^digits."""
        return digits + np.searchsorted(10 ** np.arange(19), counts - 1, side="right")
