"""Carry chains: how long they are in given numbers, and numbers that hold a chain of given length.

Two digits of one place generate a carry where they sum to 10 or more, whatever comes in; where
they sum to 9 they pass on what comes in. A chain is a place that generates and the places directly
after it that pass on; its length is the number of these places, each of which carries into the
next. So the last digit that a chain of length l touches depends on digits l places before it.
Source: Knuth 1978, The average time for carry propagation; Pippenger 2002, Analysis of carry
propagation in addition.

n  problems        W  most digits of an operand, the width of its array
"""

from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from tape_arith.arith.tasks.random_bits import below
from tape_arith.arith.tasks.task import Digits, Int64, UInt8

# What stands at a place of an operand: nothing, a digit, or its last digit, which is not 0.
_ABSENT, _INSIDE, _LEADING = range(3)
_DIGITS = (range(1), range(10), range(1, 10))
# What two digits of one place must do.
_ANYTHING, _GENERATE, _PASS, _NOT_PASS = range(4)


def longest_chains(a: Digits, b: Digits) -> Int64:
    """int64[n]: the length of the longest carry chain of a + b, 0 where nothing is carried.

    95 + 15: 5 + 5 generates and 9 + 1 generates, two chains of length 1. 95 + 5: 5 + 5 generates
    and 9 + nothing passes on, one chain of length 2.
    """
    sums = a.values + b.values
    running = np.zeros(len(sums), dtype=np.int64)
    longest = running.copy()
    for column in sums.T:
        running = _after(column, running)
        np.maximum(longest, running, out=longest)
    return longest


def operands_with_chains(
    operand_lengths: Int64, halves: npt.NDArray[np.uint32]
) -> tuple[Digits, Digits]:
    """Operands of lengths int64[n, 2] whose longest carry chain is as likely short as long, from
    random half words uint32[n, 2 + W].

    For operands of i and j digits the longest chain has a length l uniform over 1 .. max(i, j),
    and it starts at a place uniform over those where it fits: at one that both operands have, so
    that two digits can generate, and so low that l places follow. Past the shorter operand the
    longer one passes on by its 9s; a chain up to its last digit makes an extra digit of the answer.

    Every place's pair of digits is uniform over the pairs that are allowed there: by the leading
    digits, which are not 0; in the chain, by what the place must do; after a chain of length l, by
    not passing on, so that no chain is longer. One digit and one digit have only chains of length
    1 to offer: the 45 of their 81 sums that carry.

    Half words: the length, the start, then each place's pair, least significant first.
    """
    shorter, longer = operand_lengths.min(axis=1), operand_lengths.max(axis=1)
    length = 1 + below(longer, halves[:, 0])
    start = below(1 + np.minimum(shorter - 1, longer - length), halves[:, 1])

    counts, pairs = _allowed()
    width = halves.shape[1] - 2
    values = np.empty((len(halves), width, 2), dtype=np.uint8)
    running = np.zeros(len(halves), dtype=np.int64)
    for place in range(width):
        left = operand_lengths - place
        standing = np.where(left < 1, _ABSENT, np.where(left == 1, _LEADING, _INSIDE))
        must = np.where(running == length, _NOT_PASS, _ANYTHING)
        must[(start < place) & (place < start + length)] = _PASS
        must[start == place] = _GENERATE
        which = standing[:, 0], standing[:, 1], must
        drawn = below(counts[which], halves[:, 2 + place])
        values[:, place] = pairs[(*which, drawn)]
        running = _after(values[:, place].sum(axis=1), running)
    first, second = (np.ascontiguousarray(values[:, :, side]) for side in (0, 1))
    return (
        Digits(first, operand_lengths[:, 0].copy()),
        Digits(second, operand_lengths[:, 1].copy()),
    )


def _after(sums: npt.NDArray[np.integer], running: Int64) -> Int64:
    """The length of the chain that ends at a place whose digits sum to `sums`, 0 for none, where
    the place before it ended one of length `running`."""
    passed = np.where((sums == 9) & (running > 0), running + 1, 0)
    after: Int64 = np.where(sums > 9, 1, passed)
    return after


@lru_cache(maxsize=1)
def _allowed() -> tuple[Int64, UInt8]:
    """int64[3, 3, 4] and uint8[3, 3, 4, 100, 2]: by what stands in the first operand, in the
    second, and by what they must do: how many pairs of digits are allowed, and which."""
    counts = np.zeros((3, 3, 4), dtype=np.int64)
    pairs = np.zeros((3, 3, 4, 100, 2), dtype=np.uint8)
    for first, second in product((_ABSENT, _INSIDE, _LEADING), repeat=2):
        every = list(product(_DIGITS[first], _DIGITS[second]))
        fitting = {
            _ANYTHING: every,
            _GENERATE: [pair for pair in every if sum(pair) > 9],
            _PASS: [pair for pair in every if sum(pair) == 9],
            _NOT_PASS: [pair for pair in every if sum(pair) != 9],
        }
        for must, chosen in fitting.items():
            counts[first, second, must] = len(chosen)
            if chosen:
                pairs[first, second, must, : len(chosen)] = chosen
    return counts, pairs
