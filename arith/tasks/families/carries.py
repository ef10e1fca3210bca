"""Measure carry chains, and draw numbers with long ones.

Each place of an answer has a column: the sum of the operands' digits there, their difference, or a
sum of products. With a carry c into a place, the carry out is floor((column + c) / 10); it is below
0 where a subtraction borrows. A place passes a carry on if its carry out would differ without the
carry in. A chain is a place that carries by itself and the places directly after it that pass on.
In sums of two numbers the digits at the first place of a chain sum to 10 or more, at the others to
9. So the last digit that a chain of length l changes depends on digits l places before it.
Source: Knuth 1978, The average time for carry propagation; Pippenger 2002, Analysis of carry
propagation in addition.

n  problems      W  places
"""

from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np

from tape_arith.arith.tasks.families.numbers import Int64, UInt8, UInt32
from tape_arith.arith.tasks.families.random_words import below

# Content of a number at a place: nothing, a digit, or the leading digit, which is not 0.
_ABSENT, _INSIDE, _LEADING = range(3)
_DIGITS = (range(1), range(10), range(1, 10))
# Requirements on a place.
_ANYTHING, _CARRY, _PASS_ON, _NOT_PASS_ON, _CARRY_NOTHING = range(5)


def longest_chains(columns: Int64, base: int = 10) -> Int64:
    """Return the length of the longest carry chain of each problem, int64[n].

    columns  int64[n, W], the least significant place first

    95 + 5: 5 + 5 carries and 9 + nothing passes on, one chain of length 2. 95 + 15: 5 + 5 carries
    and 9 + 1 carries, two chains of length 1. 95 + 4: nothing is carried, 0.
    """
    carry = running = longest = np.zeros(len(columns), np.int64)
    for column in columns.T:
        carry, running = _next_place(column, carry, running, base)
        longest = np.maximum(longest, running)
    return longest


def _next_place(column: Int64, carry: Int64, running: Int64, base: int = 10) -> tuple[Int64, Int64]:
    """Return the carry out of a place and the length of the chain that ends there (0: none).

    carry, running  the same of the place before
    """
    alone, out = column // base, (column + carry) // base
    return out, np.where(out != alone, running + 1, out != 0)


def draw_chained(
    lengths: Int64, halves: UInt32, other_columns: Int64 | None = None, sign: Literal[1, -1] = 1
) -> tuple[UInt8, UInt8]:
    """Draw two numbers whose sum has a longest carry chain of uniform length.

    lengths        int64[n, 2]: digits of each number
    halves         uint32[n, 2 + W]: the chain's length, its start, then each place's pair of digits
    other_columns  int64[n, W]: the sum of other numbers at each place
    sign           -1: the difference of the numbers; the first has no fewer digits

    Returns their digits, uint8[n, W] each. The length l of the longest chain is uniform over 1 to
    the digits of the longer number, less one in a difference, which is not below 0, so its leading
    place carries nothing. The start is uniform over the places where the chain fits: both numbers
    have a digit there, and the chain ends within the longer one. Beyond the shorter number the
    longer one passes the carry on, with 9s in a sum of two and with 0s in a difference.

    The pair of digits at a place is uniform over the pairs allowed there. Leading digits are not 0,
    places of the chain carry and pass on, and a place after a chain of length l does not pass on,
    so that no chain is longer. Two numbers of one digit allow only chains of length 1 in a sum (45
    of 81 pairs carry) and none in a difference. Where no pair is allowed, as with large columns of
    other numbers, any pair is drawn, and the chain is longer or shorter.
    """
    count, width = len(halves), halves.shape[1] - 2
    if other_columns is None:
        other_columns = np.zeros((count, width), np.int64)
    longest = lengths.max(axis=1)
    carrying = longest - (sign == -1)
    length = 1 + below(carrying, halves[:, 0])
    start = below(1 + np.minimum(lengths.min(axis=1) - 1, carrying - length), halves[:, 1])

    digits = np.empty((2, count, width), np.uint8)
    carry: Int64 = np.zeros(count, np.int64)
    running = carry
    for place in range(width):
        left = lengths - place
        content = np.where(left < 1, _ABSENT, np.where(left == 1, _LEADING, _INSIDE))
        must = np.where(running == length, _NOT_PASS_ON, _ANYTHING)
        must[(start < place) & (place < start + length)] = _PASS_ON
        must[start == place] = _CARRY
        must[place == carrying] = _CARRY_NOTHING  # in a sum this place is beyond both numbers
        kinds = (*content.T, must, other_columns[:, place], carry + 1)
        pair = _drawn_pairs(kinds, sign, halves[:, 2 + place])
        digits[:, :, place] = pair.T
        column = other_columns[:, place] + pair @ np.array([1, sign])
        carry, running = _next_place(column, carry, running)
    return digits[0], digits[1]


def _drawn_pairs(kinds: tuple[Int64, ...], sign: int, halves: UInt32) -> Int64:
    """Draw a pair of digits for each problem, int64[n, 2], from those allowed for its kind."""
    sizes = [int(values.max(initial=0)) + 1 for values in kinds]
    numbers, kind = np.unique(np.ravel_multi_index(kinds, sizes), return_inverse=True)
    tables = [
        _allowed_pairs(*map(int, rules), sign)
        for rules in zip(*np.unravel_index(numbers, sizes), strict=True)
    ]
    counts = np.array([len(table) for table in tables], np.int64)
    firsts = np.cumsum(counts) - counts
    none = np.zeros((0, 2), np.int64)
    return np.concatenate([none, *tables])[firsts[kind] + below(counts[kind], halves)]


@lru_cache(maxsize=2**14)
def _allowed_pairs(
    first: int, second: int, must: int, other_column: int, carry_plus_one: int, sign: int
) -> Int64:
    """Return the allowed pairs of digits, int64[pairs, 2]; all pairs if none is allowed."""

    def allowed(x: int, y: int) -> bool:
        column = other_column + x + sign * y
        alone, out = column // 10, (column + carry_plus_one - 1) // 10
        rules = {
            _ANYTHING: True,
            _CARRY: alone != 0,
            _PASS_ON: out != alone,
            _NOT_PASS_ON: out == alone,
            _CARRY_NOTHING: out == 0,
        }
        return rules[must]

    pairs = list(product(_DIGITS[first], _DIGITS[second]))
    return np.array([pair for pair in pairs if allowed(*pair)] or pairs, np.int64)
