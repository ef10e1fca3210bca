"""Arrange problems as inputs of the decoder: rows of similar length, padded or packed end to end.

Legend: n rows, T tokens of the longest row or a few more. If packed: C tokens in N sequences, the n
rows and then fillers, which are sequences of padding.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.tasks.families.random_words import below, half_words
from tape_arith.arith.tasks.families.tokens import BOS, PAD
from tape_arith.arith.tasks.task import Problems

Integers = NDArray[np.int64]
CAPACITY_STEP = 4096
"""The last packed group has a multiple of this many tokens: few shapes, little padding."""


class Rows(NamedTuple):
    """Right-padded or packed rows. Inputs are T - 1 wide, because the end token is never an input.

    If packed, inputs, targets and is_answer are [1, C], all rows end to end, and final_lengths and
    keys are [N], with those of the fillers.

    source_index    int64 [n]       index of each row among the problems
    inputs          int64 [n, T-1]  all tokens but the last
    targets         int64 [n, T-1]  the token after each input
    is_answer       bool  [n, T-1]  targets that are scored: answer digits and the end token
    prompt_lengths  int64 [n]
    final_lengths   int64 [n]
    keys            int64 [n]
    answer_tokens   int64 [n]       number of scored targets of each row, at least 1
    starts          int32 [N + 1]   start of each sequence, then C; None if padded
    longest         if packed, upper limit on the length of a sequence
    batch_key       key of the first problem in the training batch of these rows
    """

    source_index: Integers
    inputs: Integers
    targets: Integers
    is_answer: NDArray[np.bool_]
    prompt_lengths: Integers
    final_lengths: Integers
    keys: Integers
    answer_tokens: Integers
    starts: NDArray[np.int32] | None = None
    longest: int = 0
    batch_key: int = 0

    @property
    def answers(self) -> Integers:
        """Flat indices of the scored tokens among all inputs, row after row: int64 [m]."""
        return np.flatnonzero(self.is_answer)


def prepend_bos(problems: Problems, keys: Integers, most: int) -> Problems:
    """Put 0 to `most` [BOS] before each problem, a number drawn uniformly by the problem's key."""
    if most == 0:
        return problems
    counts = below(most + 1, half_words(keys.astype(np.uint64)[:, None])[:, 0])
    return problems.inserted(BOS, np.repeat(problems.starts, counts), counts)


def pad(
    problems: Problems, keys: Integers, source_index: Integers, width: int | None = None
) -> Rows:
    """Pad the problems at `source_index`, in this order, to `width` inputs (None: the longest)."""
    lengths, prompts = problems.lengths[source_index], problems.prompt_lengths[source_index]
    starts = problems.starts[source_index]
    column = np.arange(lengths.max() if width is None else width + 1)
    inside = column < lengths[:, None]
    source = np.minimum(starts[:, None] + column, len(problems.tokens) - 1)
    tokens = np.where(inside, problems.tokens[source], PAD).astype(np.int64)
    return Rows(
        source_index=source_index,
        inputs=tokens[:, :-1],
        targets=tokens[:, 1:],
        is_answer=(inside & (column >= prompts[:, None]))[:, 1:],
        prompt_lengths=prompts,
        final_lengths=problems.final_lengths[source_index],
        keys=keys[source_index],
        answer_tokens=lengths - prompts,
    )


def pack(
    problems: Problems,
    keys: Integers,
    source_index: Integers,
    capacity: int | None = None,
    longest: int | None = None,
) -> Rows:
    """Pack the problems at `source_index` end to end.

    Fillers complete `capacity` tokens, so that all batches have the same shape.
    """
    widths = problems.lengths[source_index] - 1
    prompts = problems.prompt_lengths[source_index]
    longest = int(widths.max()) if longest is None else longest
    ends = np.cumsum(widths)
    used = int(ends[-1])
    capacity = used if capacity is None else max(capacity, used)
    # An empty batch needs the most fillers; every batch gets this number.
    fillers = used + longest * np.arange(1, -(-capacity // longest) + 1)
    starts = np.concatenate(([0], ends, np.minimum(fillers, capacity))).astype(np.int32)
    row = np.repeat(np.arange(len(source_index)), widths)
    column = np.arange(used) - starts[row]
    source = problems.starts[source_index][row] + column

    def filled(values: NDArray[np.generic], size: int, fill: int) -> NDArray[Any]:
        return np.concatenate((values, np.full(size - len(values), fill, values.dtype)))

    tokens = problems.tokens.astype(np.int64)
    count = len(starts) - 1
    return Rows(
        source_index=source_index,
        inputs=filled(tokens[source], capacity, PAD)[None],
        targets=filled(tokens[source + 1], capacity, PAD)[None],
        is_answer=filled(column >= prompts[row] - 1, capacity, False)[None],
        prompt_lengths=prompts,
        final_lengths=filled(problems.final_lengths[source_index], count, longest + 1),
        keys=filled(keys[source_index], count, 0),
        answer_tokens=problems.lengths[source_index] - prompts,
        starts=starts,
        longest=longest,
    )


def few_shapes(
    lengths: Integers, count: int, tokens: int, widths: Integers
) -> Iterator[tuple[slice, int]]:
    """Yield the rows and the width of each of at most `count` groups, which have few shapes.

    lengths  lengths of the inputs, the longest first
    widths   widths that a group may have, ascending; the last is at least the longest length

    A group has about `tokens` inputs, padding included, and at least one row. The width determines
    the shape, except for the last group, which takes all remaining rows.
    """
    start = 0
    for group in range(count):
        if start == len(lengths):
            return
        width = int(widths[np.searchsorted(widths, lengths[start])])
        rows = max(1, round(tokens / width)) if group < count - 1 else len(lengths)
        stop = min(start + rows, len(lengths))
        yield slice(start, stop), width
        start = stop


def groups_of_few_shapes(
    problems: Problems, keys: Integers, count: int, tokens: int, widths: Integers
) -> Iterator[Rows]:
    """Yield all problems, padded, in the groups of `few_shapes`."""
    order = np.argsort(-problems.lengths, kind="stable")
    for rows, width in few_shapes(problems.lengths[order] - 1, count, tokens, widths):
        yield pad(problems, keys, order[rows], width)


def groups_of_tokens(
    problems: Problems,
    keys: Integers,
    most: int,
    indices: Integers | None = None,
    *,
    packed: bool = False,
) -> Iterator[Rows]:
    """Yield the problems at `indices` (all, if None) in groups of similar length.

    A group has at most `most` tokens, padding included, but at least one row. Packed groups are
    filled to `most` tokens, for one shape; the last group to a multiple of CAPACITY_STEP.
    """
    indices = np.arange(len(problems.lengths)) if indices is None else indices
    order = indices[np.argsort(problems.lengths[indices], kind="stable")]
    lengths = problems.lengths[order]
    start = 0
    while start < len(order):
        # Rows are sorted by length, so the last row of a group is the widest.
        if packed:
            size = np.cumsum(lengths[start:] - 1)
        else:
            size = np.arange(1, len(order) - start + 1) * lengths[start:]
        stop = start + max(1, int(np.searchsorted(size, most, side="right")))
        if packed:
            used = int(size[stop - start - 1])
            filled = -(-used // CAPACITY_STEP) * CAPACITY_STEP if stop == len(order) else most
            yield pack(problems, keys, order[start:stop], min(most, filled))
        else:
            yield pad(problems, keys, order[start:stop])
        start = stop
