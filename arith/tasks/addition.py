"""Addition of two numbers of any length, and operands with long carry chains.

A place (ones, tens, ...) generates a carry if its two digits sum to 10 or more; if they sum to 9,
it passes on a carry that comes in. A chain is a place that generates and the places directly after
it that pass on; its length is the number of all these places, each of which carries into the next.
So the last digit that a chain of length l changes depends on digits l places before it.
Source: Knuth 1978, The average time for carry propagation; Pippenger 2002, Analysis of carry
propagation in addition.
"""

from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from tape_arith.arith.tasks.families.numbers import Digits, Int64, UInt8, UInt32, added
from tape_arith.arith.tasks.families.random_words import below
from tape_arith.arith.tasks.families.two_operands import Operands, TwoOperands, longer
from tape_arith.arith.tasks.families.writing import Field, Format, Writer

# What an operand has at a place: nothing, a digit, or its leading digit, which is not 0.
_ABSENT, _INSIDE, _LEADING = range(3)
_DIGITS = (range(1), range(10), range(1, 10))
# What the two digits of a place must do.
_ANYTHING, _GENERATE, _PASS, _NOT_PASS = range(4)


class Addition(TwoOperands):
    """The sum of two numbers; with a scratchpad, after the carry out of each place.

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

    def answer(self, a: Digits, b: Digits) -> Digits:
        return added(a, b)

    def answer_digits(self, lengths: Int64) -> Int64:
        return longer(lengths) + 1

    def answer_fields(self, drawn: Operands, write: Writer) -> list[Field]:
        total = write.number(added(*drawn))
        if not self.format.scratchpad:
            return [total]
        return [write.number(carries(*drawn)), write.symbol(">"), total]

    def answer_bound(self, lengths: Int64) -> Int64:
        steps = longer(lengths) * self.format.tokens_per_digit + 1
        return super().answer_bound(lengths) + (steps if self.format.scratchpad else 0)

    def carry_chains(self, drawn: Operands) -> Int64:
        """Return the length of the longest carry chain of each sum, 0 if nothing is carried.

        95 + 15: 5 + 5 generates and 9 + 1 generates, two chains of length 1. 95 + 5: 5 + 5
        generates and 9 + nothing passes on, one chain of length 2.
        """
        a, b = drawn
        running = np.zeros(len(a.lengths), dtype=np.int64)
        longest = running.copy()
        for column in (a.values + b.values).T:
            running = _chain_after(column, running)
            np.maximum(longest, running, out=longest)
        return longest

    def hard_halves(self, most: tuple[int, ...]) -> int:
        return 2 + max(most)

    def draw_hard(self, lengths: Int64, halves: UInt32) -> Operands:
        """Draw operands whose longest carry chain is as likely short as long.

        For operands of i and j digits, the length l of the longest chain is uniform over
        1 .. max(i, j). Its start is uniform over the places where it fits: both operands must have
        a digit there, to generate, and the chain must end within the longer operand. Beyond the
        shorter operand, the longer one passes the carry on with 9s; a chain up to its last digit
        gives the answer an extra digit.

        The pair of digits at a place is uniform over the pairs allowed there. Leading digits are
        not 0, places of the chain generate or pass on, and a place after a chain of length l does
        not pass on, so that no chain is longer. Two operands of one digit allow only chains of
        length 1: 45 of their 81 sums carry.

        Half words: the length, the start, then each place's pair, least significant first.
        """
        shortest, longest = lengths.min(axis=1), lengths.max(axis=1)
        length = 1 + below(longest, halves[:, 0])
        start = below(1 + np.minimum(shortest - 1, longest - length), halves[:, 1])

        counts, pairs = _allowed_pairs()
        width = halves.shape[1] - 2
        values = np.empty((2, len(halves), width), dtype=np.uint8)
        running = np.zeros(len(halves), dtype=np.int64)
        for place in range(width):
            left = lengths - place
            content = np.where(left < 1, _ABSENT, np.where(left == 1, _LEADING, _INSIDE))
            must = np.where(running == length, _NOT_PASS, _ANYTHING)
            must[(start < place) & (place < start + length)] = _PASS
            must[start == place] = _GENERATE
            key = content[:, 0], content[:, 1], must
            drawn = below(counts[key], halves[:, 2 + place])
            values[:, :, place] = pairs[(*key, drawn)].T
            running = _chain_after(values[:, :, place].sum(axis=0), running)
        first, second = lengths.T.copy()
        return Digits(values[0], first), Digits(values[1], second)


def carries(a: Digits, b: Digits) -> Digits:
    """Return the carry out of each place of a + b, for the places of the longer operand."""
    length = np.maximum(a.lengths, b.lengths)
    width = 1 + int(length.max(initial=0))
    # digit of the sum = digit of a + digit of b + carry in - 10 x carry out. Ten is even: so the
    # lowest bit of (digit of the sum - digit of a - digit of b) is the carry in.
    total, first, second = (number.widened(width).values for number in (added(a, b), a, b))
    into = (total - first - second) & 1
    return Digits(np.ascontiguousarray(into[:, 1:]), length)


def _chain_after(sums: npt.NDArray[np.integer], running: Int64) -> Int64:
    """Return the length of the chain that ends at a place, 0 for none. `sums` are the sums of its
    digits, `running` the lengths of the chains that end at the place before it."""
    passed = np.where((sums == 9) & (running > 0), running + 1, 0)
    after: Int64 = np.where(sums > 9, 1, passed)
    return after


@lru_cache(maxsize=1)
def _allowed_pairs() -> tuple[Int64, UInt8]:
    """Return how many pairs of digits are allowed, int64[3, 3, 4], and the pairs, [..., 100, 2].

    Indices: what the first operand has at a place, what the second has, what both must do.
    """
    counts = np.zeros((3, 3, 4), dtype=np.int64)
    pairs = np.zeros((3, 3, 4, 100, 2), dtype=np.uint8)
    rules = {
        _ANYTHING: lambda total: True,
        _GENERATE: lambda total: total > 9,
        _PASS: lambda total: total == 9,
        _NOT_PASS: lambda total: total != 9,
    }
    for (first, second), (must, rule) in product(product(range(3), repeat=2), rules.items()):
        allowed = [p for p in product(_DIGITS[first], _DIGITS[second]) if rule(sum(p))]
        counts[first, second, must] = len(allowed)
        pairs[first, second, must, : len(allowed)] = np.reshape(allowed, (-1, 2))
    return counts, pairs
