"""Compute with numbers of any length as arrays of digits, the least significant first.

n  problems      W  places, no fewer than the digits of the longest number
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tape_arith.arith.tasks.families.random_words import below

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]

QUAD = 4
"""Number of decimal digits drawn from one half word."""
_QUADS = np.arange(10**QUAD)[:, None] // 10 ** np.arange(QUAD) % 10
_QUADS_PACKED = np.ascontiguousarray(_QUADS, dtype=np.uint8).view(np.uint32).reshape(-1)


class Digits(NamedTuple):
    """Numbers of any length: digit k of number r is `values[r, k]`, 0 from `lengths[r]` on."""

    values: UInt8
    """uint8[n, at least the longest length], in C order"""
    lengths: Int64
    """int64[n]: number of digits"""

    def where(self, present: npt.NDArray[np.bool_]) -> "Digits":
        """Return the numbers that are `present`, bool[n]; the others get no digits."""
        return Digits(self.values * present[:, None], self.lengths * present)

    def widened(self, width: int) -> "Digits":
        """Return the same numbers with `width` places, no fewer than the longest length."""
        extra = width - self.values.shape[1]
        if extra > 0:
            return Digits(np.pad(self.values, ((0, 0), (0, extra))), self.lengths)
        return Digits(np.ascontiguousarray(self.values[:, :width]), self.lengths)


@lru_cache(maxsize=16)
def prefixes(width: int) -> UInt8:
    """Return uint8[width + 1, width]: row l has l ones, then zeros. Cached: do not write to it."""
    return np.tri(width + 1, width, k=-1, dtype=np.uint8)


def num_quads(digits: int) -> int:
    """Return the number of half words for `digits` digits."""
    return -(-digits // QUAD)


def drawn_digits(lengths: Int64, halves: UInt32) -> Digits:
    """Draw strings of digits 0 .. 9 from half words [n, num_quads of the longest]."""
    count, quads = halves.shape
    packed = _QUADS_PACKED.take(below(10**QUAD, halves), mode="wrap")  # all in range
    values = np.ascontiguousarray(packed).view(np.uint8).reshape(count, QUAD * quads)
    values *= prefixes(QUAD * quads).take(lengths, axis=0)
    return Digits(values, lengths.copy())


def drawn_numbers(lengths: Int64, leading: UInt32, halves: UInt32) -> Digits:
    """Draw numbers; `leading` gives their leading digits, which are not 0, `halves` the others."""
    numbers = drawn_digits(lengths, halves)
    numbers.values[np.arange(len(lengths)), lengths - 1] = below(9, leading) + 1
    return numbers


def digits_of(numbers: Sequence[str]) -> Digits:
    """Return the digits of numbers in the usual order, as in "123"."""
    width = max(map(len, numbers), default=0)
    rows = [[int(digit) for digit in number[::-1].ljust(width, "0")] for number in numbers]
    lengths = np.array([len(number) for number in numbers], dtype=np.int64)
    return Digits(np.array(rows, dtype=np.uint8).reshape(len(numbers), width), lengths)


def added(a: Digits, b: Digits) -> Digits:
    """Add two numbers. Both arrays of values have one shape."""
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


def differences(a: Digits, b: Digits) -> tuple[Digits, npt.NDArray[np.bool_]]:
    """Return |a - b| and whether a < b. Both arrays of values have one shape."""
    result = a.values.astype(np.int8) - b.values.astype(np.int8)
    count, width = result.shape
    # The highest place where the two differ decides which is larger.
    highest = width - 1 - np.argmax(result[:, ::-1] != 0, axis=1)
    negative = result[np.arange(count), highest] < 0 if width else np.zeros(count, np.bool_)
    result[negative] *= -1
    # As in `added`: the larger number comes first, so that no number borrows from the next.
    flat = result.reshape(-1)
    while (borrows := (flat < 0).view(np.int8)).any():
        flat += 10 * borrows
        flat[1:] -= borrows[:-1]
    return without_leading_zeros(result.view(np.uint8)), negative


def product_columns(a: Digits, b: Digits) -> Int64:
    """Sum the products of digits at each place of a * b: int64[n, W of a + W of b]."""
    first, second = a.values.T.astype(np.int64), b.values.T.astype(np.int64)
    total = np.zeros((len(first) + len(second), len(a.lengths)), dtype=np.int64)
    for place, digits in enumerate(second):
        total[place : place + len(first)] += first * digits
    return total.T


def products(a: Digits, b: Digits) -> Digits:
    """Return a * b."""
    total = product_columns(a, b).T
    for place in range(len(total) - 1):
        total[place + 1] += total[place] // 10
        total[place] %= 10
    return without_leading_zeros(np.ascontiguousarray(total.T, dtype=np.uint8))


def without_leading_zeros(values: UInt8) -> Digits:
    """Return numbers [n, W] with their lengths; 0 has one digit."""
    width = values.shape[1]
    lengths = width - np.argmax(values[:, ::-1] != 0, axis=1) if width else np.ones(len(values))
    return Digits(values, np.where(values.any(axis=1), lengths, 1).astype(np.int64))
