"""Problems as padded rows, sorted by length so that little of a batch is padding.

Legend: n rows, T tokens of the longest row.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arith.data.task import Problems
from arith.data.vocabulary import PAD

Integers = NDArray[np.int64]


class Rows(NamedTuple):
    """Right-padded rows. The end token is never an input, so inputs are T - 1 wide.

    place           int64 [n]       where each row stood among the problems
    inputs          int64 [n, T-1]  tokens but the last
    targets         int64 [n, T-1]  the token after each input
    is_answer       bool  [n, T-1]  targets that are scored: answer digits and the end token
    prompt_lengths  int64 [n]
    final_lengths   int64 [n]
    keys            int64 [n]
    """

    place: Integers
    inputs: Integers
    targets: Integers
    is_answer: NDArray[np.bool_]
    prompt_lengths: Integers
    final_lengths: Integers
    keys: Integers


def concatenate(parts: Sequence[Problems]) -> Problems:
    """Problems end to end."""
    return Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def pad(problems: Problems, keys: Integers, place: Integers) -> Rows:
    """The rows of `problems` at `place`, in that order."""
    lengths, prompts = problems.lengths[place], problems.prompt_lengths[place]
    starts = (np.cumsum(problems.lengths) - problems.lengths)[place]
    column = np.arange(lengths.max())
    inside = column < lengths[:, None]
    source = np.minimum(starts[:, None] + column, len(problems.tokens) - 1)
    tokens = np.where(inside, problems.tokens[source], PAD).astype(np.int64)
    return Rows(
        place=place,
        inputs=tokens[:, :-1],
        targets=tokens[:, 1:],
        is_answer=(inside & (column >= prompts[:, None]))[:, 1:],
        prompt_lengths=prompts,
        final_lengths=problems.final_lengths[place],
        keys=keys[place],
    )


def equal_groups(problems: Problems, keys: Integers, count: int) -> Iterator[Rows]:
    """At most `count` groups of about equally many tokens, the longest rows first."""
    order = np.argsort(-problems.lengths, kind="stable")
    tokens = np.cumsum(problems.lengths[order])
    cuts = np.searchsorted(tokens, tokens[-1] * np.arange(1, count) / count)
    for place in np.split(order, np.unique(cuts)):
        if len(place):
            yield pad(problems, keys, place)


def groups_of_tokens(
    problems: Problems, keys: Integers, most: int, among: Integers | None = None
) -> Iterator[Rows]:
    """Groups, by length, of at most `most` padded tokens each (one row at the least), of all
    problems or of those at the places `among`."""
    among = np.arange(len(problems.lengths)) if among is None else among
    order = among[np.argsort(problems.lengths[among], kind="stable")]
    lengths = problems.lengths[order]
    start = 0
    while start < len(order):
        # Rows grow longer, so the last row that fits is found by the width it would force.
        size = np.arange(1, len(order) - start + 1) * lengths[start:]
        stop = start + max(1, int(np.searchsorted(size, most, side="right")))
        yield pad(problems, keys, order[start:stop])
        start = stop
