"""Addition Bucket and similar data: an endless, balanced, indexed stream of problems.

n  problems asked for      W  max_digits      P  pairs of operand lengths, W * W
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.tasks.task import (
    Digits,
    Int64,
    Problems,
    below,
    concatenate,
    half_words,
    load_task,
    prefixes,
    words,
)

EVALUATION, CARRY = "evaluation", "carry"
SPLITS = (EVALUATION, CARRY)
"""Splits that a run can be scored on: uniform operands as in training, or the task's hard ones."""
LENGTH_TYPE = np.dtype("<u2")
"""Type of a problem's length as it is stored and hashed."""
MOST_DIGITS = 700
"""Limit of `max_digits`. Its square is the length of a block, whose order is drawn in memory, and
the number of cells of a grid, whose file must stay short enough to be read back."""
MOST_PER_CELL = 2**20
"""Limit of problems per cell, up to which every sum of a grid is exact in float64."""
_MOST_PROBLEMS = 2**26
"""Limit of problems per grid: more would take hours to generate before any is scored."""

_CACHED_TOKENS = 2**21  # size of the work arrays; larger ones exceed the processor's cache
_PIECE_TOKENS = 2**23  # size of what `pieces` yields at once
_ORDERED = 2**14  # problems whose order is drawn at once

_QUAD = 4  # decimal digits from one half word
_QUADS = np.arange(10**_QUAD)[:, None] // 10 ** np.arange(_QUAD) % 10
_QUADS_PACKED = np.ascontiguousarray(_QUADS, dtype=np.uint8).view(np.uint32).reshape(-1)


@dataclass(frozen=True)
class Bucket:
    """Problems 0, 1, 2, ... whose operands have 1 to `max_digits` digits.

    Problem i is a pure function of the fields, the task's version and i. Problems k P to
    k P + P - 1, a block, hold every pair of operand lengths once, in an order of their own. An
    operand of d digits is uniform over 10**(d-1) .. 10**d - 1 (one digit: 1 .. 9), except in the
    split "carry", whose operands the task chooses (`Task.carry_operands`).

    Raises UsageError for an unknown task, a `max_digits` out of range, and the split "carry" if the
    task has none.
    """

    task: str
    max_digits: int
    seed: int
    split: str
    """"train", one of SPLITS, or any other name, which gives an independent stream"""

    def __post_init__(self) -> None:
        load_task(self.task)
        if not 1 <= self.max_digits <= MOST_DIGITS:
            raise UsageError(f"operands have 1 to {MOST_DIGITS} digits, not {self.max_digits}")
        if self.split == CARRY:
            self.operands(0, 0)

    @property
    def version(self) -> int:
        """The version of the task."""
        return load_task(self.task).version

    @property
    def num_pairs(self) -> int:
        """P: number of pairs of operand lengths."""
        return self.max_digits**2

    @property
    def longest(self) -> int:
        """Tokens of the longest problem, the end token included."""
        return load_task(self.task).longest(self.max_digits)

    def problems(self, start: int, stop: int) -> Problems:
        """Return problems start .. stop - 1, all in memory."""
        _check(start, stop)
        rows = max(1, _CACHED_TOKENS // self.longest)
        firsts = range(start, max(stop, start + 1), rows)  # at least one, even if empty
        return concatenate([self._chunk(first, min(first + rows, stop)) for first in firsts])

    def pieces(self, start: int, stop: int) -> Iterator[Problems]:
        """Yield problems start .. stop - 1 in pieces of bounded size (some tens of MB)."""
        _check(start, stop)
        rows = max(1, _PIECE_TOKENS // self.longest)
        for first in range(start, stop, rows):
            yield self.problems(first, min(first + rows, stop))

    def operand_lengths(self, start: int, stop: int) -> Int64:
        """Return both operands' numbers of digits in problems start .. stop - 1: int64[n, 2]."""
        _check(start, stop)
        span_length = _blocks_together(self.num_pairs) * self.num_pairs
        pairs = [np.zeros(0, dtype=np.int64)]
        for span in range(start // span_length, -(-stop // span_length)):
            first = span * span_length
            pairs.append(_pairs(self, span)[max(start - first, 0) : stop - first].astype(np.int64))
        return np.stack(np.divmod(np.concatenate(pairs), self.max_digits), axis=1) + 1

    def operands(self, start: int, stop: int) -> tuple[Digits, Digits]:
        """Return the operands of problems start .. stop - 1, in arrays of one shape."""
        if self.split != CARRY:
            return self._uniform_operands(start, stop)
        each = 2 + self.max_digits
        halves = half_words(words(self._key("digits"), start, stop - start, -(-each // 2)))
        lengths = self.operand_lengths(start, stop)
        return load_task(self.task).carry_operands(lengths, halves[:, :each])

    def keys(self, start: int, stop: int, draw: int = 0) -> Int64:
        """Return a seed for a model's random choices about each problem, int64[n] >= 0.

        Another `draw` gives other seeds for the same problems, as in a second epoch.
        """
        _check(start, stop)
        raw = words(self._key(f"key {draw}"), start, stop - start, 1)[:, 0]
        return (raw >> np.uint64(1)).astype(np.int64)

    def sha256(self, count: int) -> str:
        """Return a hash of the first `count` problems, over the hashes of tokens and lengths."""
        tokens, lengths = hashlib.sha256(), hashlib.sha256()
        for piece in self.pieces(0, count):
            tokens.update(piece.tokens.data)
            lengths.update(piece.lengths.astype(LENGTH_TYPE).data)
        return hashlib.sha256(tokens.digest() + lengths.digest()).hexdigest()

    def _key(self, purpose: str) -> tuple[str | int, ...]:
        return (self.task, self.version, self.seed, self.split, self.max_digits, purpose)

    def _chunk(self, start: int, stop: int) -> Problems:
        a, b = self.operands(start, stop)
        return load_task(self.task).problems(a, b, self.max_digits)

    def _uniform_operands(self, start: int, stop: int) -> tuple[Digits, Digits]:
        # The first two half words of a problem give the leading digits, the others four digits
        # each: W digits for a, then W for b. Digits past a number's length are not used.
        count, quads = stop - start, -(-self.max_digits // _QUAD)
        halves = half_words(words(self._key("digits"), start, count, 1 + quads))
        leading = (below(9, halves[:, :2]) + 1).astype(np.uint8)
        packed = _QUADS_PACKED.take(below(10**_QUAD, halves[:, 2:]), mode="wrap")  # all in range
        lengths = self.operand_lengths(start, stop)

        width = _QUAD * quads
        inside = prefixes(width)
        rows = np.arange(count)
        operands = []
        for side in (0, 1):
            own = packed[:, side * quads : (side + 1) * quads]
            digits = np.ascontiguousarray(own).view(np.uint8).reshape(count, width)
            length = lengths[:, side].copy()
            digits *= inside.take(length, axis=0)
            digits[rows, length - 1] = leading[:, side]
            operands.append(Digits(digits, length))
        return operands[0], operands[1]


def check_size(size: int, per_cell: int, trained_digits: int) -> None:
    """Raise UsageError if a grid to `size` digits cannot have `per_cell` problems a cell."""
    if size < trained_digits:
        raise UsageError(
            f"a grid to {size} digits does not cover the {trained_digits} trained digits: "
            f"score to {trained_digits} digits or more"
        )
    most = min(MOST_PER_CELL, _MOST_PROBLEMS // size**2)
    if not 1 <= per_cell <= most:
        raise UsageError(f"{per_cell:,} problems a cell to {size} digits: give 1 to {most:,}")


def known_split(name: str) -> str:
    """Return `name`, one of SPLITS. Raises UsageError if it is not."""
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    return name


def _blocks_together(num_pairs: int) -> int:
    return -(-_ORDERED // num_pairs)


@lru_cache(maxsize=32)  # enough for as many threads, each in its own span
def _pairs(bucket: Bucket, span: int) -> npt.NDArray[np.uint32]:
    """Return the length pair, numbered 0 .. P - 1, of each problem of a span of blocks."""
    num_pairs = bucket.num_pairs
    together = _blocks_together(num_pairs)
    raw = words(bucket._key("order"), span * together, together, num_pairs)
    # Sorting random words that carry a pair's number in their low bits orders the pairs at random.
    # All words differ, so that every sorting algorithm gives the same order.
    low = np.uint64(2 ** (num_pairs - 1).bit_length() - 1)
    tagged = (raw & ~low) | np.arange(num_pairs, dtype=np.uint64)
    tagged.sort(axis=1)
    return (tagged & low).astype(np.uint32).reshape(-1)


def _check(start: int, stop: int) -> None:
    if not 0 <= start <= stop:
        raise ValueError(f"problems are numbered from 0 on: there is no range {start} .. {stop}")
