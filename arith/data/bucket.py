"""Generate an endless, balanced, indexed stream of problems, as of Addition Bucket.

n  requested problems      C  cells, the combinations of lengths on all axes of the task
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.tasks.families.numbers import Int64, UInt32
from tape_arith.arith.tasks.families.random_words import half_words, words
from tape_arith.arith.tasks.load import load_task, task_errors
from tape_arith.arith.tasks.task import Problems, Task, concatenate

EVALUATION, CARRY = "evaluation", "carry"
SPLITS = (EVALUATION, CARRY)
"""Splits for scoring: uniform digits as in training, or long carry chains."""
LENGTH_TYPE = np.dtype("<u2")
"""Type of a problem's length in files and hashes."""
_MOST_TOKENS = int(np.iinfo(LENGTH_TYPE).max)
"""Limit of tokens per problem."""
MOST_DIGITS = 700
"""Limit of `max_digits`. Its square is the length of a block, which is shuffled in memory, and the
number of cells of a grid, whose file must stay short enough to be read."""
MOST_PER_CELL = 2**20
"""Limit of problems per cell, so that every sum over a grid is exact in float64."""
_MOST_PROBLEMS = 2**26
"""Limit of problems per grid; more would take hours to generate."""

_PIECE_TOKENS = 2**21  # larger work arrays exceed the processor's cache
_ORDERED = 2**14  # problems shuffled at once


@dataclass(frozen=True)
class Bucket:
    """Problems 0, 1, 2, ... of 1 to `max_digits` digits; lists of up to `max_operands` numbers.

    Problem i is a pure function of the fields, the task's version and i. A block, problems k C to
    k C + C - 1, has one problem of every cell (addition: every pair of operand lengths), in an
    order drawn for this block. Cells with few different problems, as that of the shortest, repeat
    them. The task draws operands: `Task.draw`, or `Task.draw_hard` for the split "carry".

    Raises UsageError for an unknown task, for lengths that are out of range, have no problem or
    give problems too long to store, and for the split "carry" of a task without carries.
    """

    task: str
    max_digits: int
    seed: int
    split: str
    """"train", one of SPLITS, or any other name, which gives an independent stream"""
    max_operands: int = 0
    """0 if the task has no axis of operands"""

    def __post_init__(self) -> None:
        task = load_task(self.task)
        if not 1 <= self.max_digits <= MOST_DIGITS:
            raise UsageError(f"operands have 1 to {MOST_DIGITS} digits, not {self.max_digits}")
        _check_lengths(task, self.most, self.max_operands)
        if self.num_cells > MOST_DIGITS**2:
            raise UsageError(
                f"task {self.task} to {self.max_operands} operands of {self.max_digits} digits has "
                f"{self.num_cells:,} cells: give lengths with {MOST_DIGITS**2:,} at most"
            )
        if self.longest > _MOST_TOKENS:
            raise UsageError(
                f"task {self.task} has problems of up to {self.longest:,} tokens at these lengths: "
                f"give lengths with {_MOST_TOKENS:,} at most"
            )
        if self.split == CARRY and not task.has_carries:
            raise UsageError(f"task {task.name} has no split 'carry', only 'evaluation'")

    @property
    def version(self) -> int:
        """The version of the task."""
        return load_task(self.task).version

    @property
    def most(self) -> tuple[int, ...]:
        """The greatest length, or the last place, on each axis of the task."""
        limits = {"digits": self.max_digits, "operands": self.max_operands}
        axes = load_task(self.task).axes
        return tuple(axis.places or limits[axis.counts] for axis in axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of lengths on each axis."""
        axes = load_task(self.task).axes
        return tuple(most - axis.shortest + 1 for most, axis in zip(self.most, axes, strict=True))

    @property
    def num_cells(self) -> int:
        """C: number of combinations of lengths."""
        return prod(self.shape)

    @property
    def longest(self) -> int:
        """Tokens of the longest problem, with its end token."""
        with task_errors(self.task):
            return load_task(self.task).longest(self.most)

    def describe(self, count: int) -> str:
        """Describe the first `count` problems."""
        operands = f"{self.max_operands} operands of " if self.max_operands else ""
        return (
            f"{count:,} problems of {self.task} up to {operands}{self.max_digits} digits "
            f"(seed {self.seed}, split {self.split}, version {self.version})"
        )

    def check_count(self, per_cell: int) -> None:
        """Raise UsageError if a grid cannot have `per_cell` problems in each of its cells."""
        most = min(MOST_PER_CELL, _MOST_PROBLEMS // self.num_cells)
        if not 1 <= per_cell <= most:
            raise UsageError(
                f"{per_cell:,} problems a cell to {self.max_digits} digits: give 1 to {most:,}"
            )

    def problems(self, start: int, stop: int) -> Problems:
        """Return problems start .. stop - 1, all in memory."""
        return concatenate([*self.pieces(start, stop)] or [self._piece(start, start)])

    def pieces(self, start: int, stop: int) -> Iterator[Problems]:
        """Yield problems start .. stop - 1 in pieces of some MB."""
        _check_range(start, stop)
        rows = max(1, _PIECE_TOKENS // self.longest)
        for first in range(start, stop, rows):
            yield self._piece(first, min(first + rows, stop))

    def axis_lengths(self, start: int, stop: int) -> Int64:
        """Return the length on each axis of problems start .. stop - 1: int64[n, axes]."""
        _check_range(start, stop)
        num_cells = self.num_cells
        span_length = _blocks_together(num_cells) * num_cells
        cells = [np.zeros(0, dtype=np.int64)]
        for span in range(start // span_length, -(-stop // span_length)):
            first = span * span_length
            inside = slice(max(start - first, 0), stop - first)
            cells.append(_cells(self, num_cells, span)[inside].astype(np.int64))
        shortest = [axis.shortest for axis in load_task(self.task).axes]
        places = np.unravel_index(np.concatenate(cells), self.shape)
        return np.stack(places, axis=1) + shortest

    def drawn(self, start: int, stop: int) -> Any:
        """Draw problems start .. stop - 1 in the task's form, such as two arrays of digits."""
        task, lengths = load_task(self.task), self.axis_lengths(start, stop)
        with task_errors(self.task):
            if self.split == CARRY:
                halves = self._halves("digits", start, stop, task.hard_halves(self.most))
                return task.draw_hard(lengths, halves, self.most)
            halves = self._halves("digits", start, stop, 2 * task.words_each(self.most))
            return task.draw(lengths, halves, self.most)

    def keys(self, start: int, stop: int, draw: int = 0) -> Int64:
        """Return a seed per problem for a model's random choices, int64[n] >= 0.

        Another `draw` gives the same problems other seeds, as for a second epoch.
        """
        _check_range(start, stop)
        raw = words(self._key(f"key {draw}"), start, stop - start, 1)[:, 0]
        return (raw >> np.uint64(1)).astype(np.int64)

    def sha256(self, count: int, before_piece: Callable[[], None] = lambda: None) -> str:
        """Hash the first `count` problems, from the hashes of tokens and lengths."""
        tokens, lengths = hashlib.sha256(), hashlib.sha256()
        for piece in self.pieces(0, count):
            before_piece()
            tokens.update(piece.tokens.data)
            lengths.update(piece.lengths.astype(LENGTH_TYPE).data)
        return hashlib.sha256(tokens.digest() + lengths.digest()).hexdigest()

    def _key(self, purpose: str) -> tuple[str | int, ...]:
        lengths = (self.max_digits, *((self.max_operands,) if self.max_operands else ()))
        return (self.task, self.version, self.seed, self.split, *lengths, purpose)

    def _halves(self, purpose: str, start: int, stop: int, each: int) -> UInt32:
        """Return random half words for a purpose: uint32[n, each]."""
        return half_words(words(self._key(purpose), start, stop - start, -(-each // 2)))[:, :each]

    def _piece(self, start: int, stop: int) -> Problems:
        task = load_task(self.task)
        format_halves = self._halves("format", start, stop, task.num_format_halves)
        drawn, lengths = self.drawn(start, stop), self.axis_lengths(start, stop)
        with task_errors(self.task):
            return task.problems(drawn, lengths, format_halves)


def _check_lengths(task: Task[Any], most: tuple[int, ...], max_operands: int) -> None:
    """Raise UsageError if the task has no problems of these lengths, or no number of operands."""
    if max_operands and all(axis.counts != "operands" for axis in task.axes):
        raise UsageError(
            f"task {task.name} has no number of operands, as in {max_operands}: set "
            "trained_operands and tested_operands to 0, or take a preset of this task "
            "(`tape-arith list`)"
        )
    for axis, length in zip(task.axes, most, strict=True):
        if axis.counts == "operands" and not axis.shortest <= length <= MOST_DIGITS:
            raise UsageError(
                f"task {task.name} has {axis.shortest} to {MOST_DIGITS} operands, not {length}: "
                "set trained_operands and tested_operands, or take a preset of this task "
                "(`tape-arith list`)"
            )
        if length < axis.shortest:
            raise UsageError(
                f"task {task.name} has {axis.shortest} or more {axis.name}, not {length}: set "
                f"trained_digits and tested_digits to {axis.shortest} or more"
            )


def check_covers(tested_digits: int, trained_digits: int) -> None:
    """Raise UsageError if a grid does not hold the trained lengths."""
    if tested_digits < trained_digits:
        raise UsageError(
            f"a grid to {tested_digits} digits does not cover the {trained_digits} trained digits: "
            f"score to {trained_digits} digits or more"
        )


def known_split(name: str) -> str:
    """Return `name`, one of SPLITS. Raises UsageError if it is not."""
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    return name


def _blocks_together(num_cells: int) -> int:
    return -(-_ORDERED // num_cells)


@lru_cache(maxsize=32)  # one span per thread, up to 32 threads
def _cells(bucket: Bucket, num_cells: int, span: int) -> npt.NDArray[np.uint32]:
    """Return the cell of each problem in a span of blocks, 0 .. C - 1.

    C belongs to the cache's key: a user's task may get other axes in its changed file.
    """
    together = _blocks_together(num_cells)
    raw = words(bucket._key("order"), span * together, together, num_cells)
    # Sorting random words with a cell's number in their low bits shuffles the cells. All words
    # differ, so every sorting algorithm gives the same order.
    low = np.uint64(2 ** (num_cells - 1).bit_length() - 1)
    tagged = (raw & ~low) | np.arange(num_cells, dtype=np.uint64)
    tagged.sort(axis=1)
    return (tagged & low).astype(np.uint32).reshape(-1)


def _check_range(start: int, stop: int) -> None:
    if not 0 <= start <= stop:
        raise ValueError(f"problems are numbered from 0 on: there is no range {start} .. {stop}")
