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

import numpy as np
import numpy.typing as npt

from tape_arith.arith.tasks.task import Digits, Int64, Task, UInt8, below

# What an operand has at a place: nothing, a digit, or its leading digit, which is not 0.
_ABSENT, _INSIDE, _LEADING = range(3)
_DIGITS = (range(1), range(10), range(1, 10))
# What the two digits of a place must do.
_ANYTHING, _GENERATE, _PASS, _NOT_PASS = range(4)


class Addition(Task):
    """The sum, all numbers written from their least significant digit on.

    >>> Addition().text(48, 5)
    '84+5=35'
    >>> Addition().text(999, 1)
    '999+1=0001'
    """

    version = 1
    symbol = "+"

    def answer_width(self, max_digits: int) -> int:
        return max_digits + 1

    def answer(self, a: Digits, b: Digits) -> Digits:
        count, width = a.values.shape
        total = np.zeros((count, width + 1), dtype=np.uint8)
        np.add(a.values, b.values, out=total[:, :width])
        # A round adds all carries at once, until none is left: some seven rounds, where going from
        # digit to digit takes one per digit. In the flat array each digit is followed by the next
        # higher one. No number spills into the next: its last place holds at most a carry.
        flat = total.reshape(-1)
        while (carries := (flat > 9).view(np.uint8)).any():
            flat -= 10 * carries
            flat[1:] += carries[:-1]

        longer = np.maximum(a.lengths, b.lengths)
        last_carry = total[np.arange(count), longer] != 0
        return Digits(total, longer + last_carry)

    def carry_chains(self, a: Digits, b: Digits) -> Int64:
        """Return the length of the longest carry chain of each sum, 0 if nothing is carried.

        95 + 15: 5 + 5 generates and 9 + 1 generates, two chains of length 1. 95 + 5: 5 + 5
        generates and 9 + nothing passes on, one chain of length 2.
        """
        running = np.zeros(len(a.lengths), dtype=np.int64)
        longest = running.copy()
        for column in (a.values + b.values).T:
            running = _chain_after(column, running)
            np.maximum(longest, running, out=longest)
        return longest

    def carry_operands(
        self, operand_lengths: Int64, halves: npt.NDArray[np.uint32]
    ) -> tuple[Digits, Digits]:
        """Return operands whose longest carry chain is as likely short as long.

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
        shorter, longer = operand_lengths.min(axis=1), operand_lengths.max(axis=1)
        length = 1 + below(longer, halves[:, 0])
        start = below(1 + np.minimum(shorter - 1, longer - length), halves[:, 1])

        counts, pairs = _allowed_pairs()
        width = halves.shape[1] - 2
        values = np.empty((2, len(halves), width), dtype=np.uint8)
        running = np.zeros(len(halves), dtype=np.int64)
        for place in range(width):
            left = operand_lengths - place
            content = np.where(left < 1, _ABSENT, np.where(left == 1, _LEADING, _INSIDE))
            must = np.where(running == length, _NOT_PASS, _ANYTHING)
            must[(start < place) & (place < start + length)] = _PASS
            must[start == place] = _GENERATE
            key = content[:, 0], content[:, 1], must
            drawn = below(counts[key], halves[:, 2 + place])
            values[:, :, place] = pairs[(*key, drawn)].T
            running = _chain_after(values[:, :, place].sum(axis=0), running)
        first, second = operand_lengths.T.copy()
        return Digits(values[0], first), Digits(values[1], second)


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
