"""The problems of each training step, and the groups in which they go through the decoder.

Legend: B problems of a batch, T tokens.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.data.rows import Rows, few_shapes, groups_of_few_shapes, pack, prepend_bos
from tape_arith.arith.runs.config import Config
from tape_arith.arith.tasks.task import Problems, concatenate

Source = Bucket | Dataset
"""A source of problems: a Dataset reads from disk what a Bucket generates."""

# Tokens per group on a CPU: larger groups leave its caches, smaller ones are mostly overhead.
_TOKENS_A_GROUP = 2_300
# Number of different group widths. oneDNN compiles a kernel for each new shape, which takes about a
# millisecond, and keeps the last 1,024. If every group had its own shape, a step at hidden size 256
# would spend a fifth of its time on that.
_WIDTHS = 32


class Batches:
    """The problems of each step.

    Step s takes the problems skip + s B .. skip + s B + B - 1 of `source`, modulo
    `config.num_problems`. The first `skip` problems belong to the run that this one began from.
    """

    def __init__(self, source: Source, bucket: Bucket, config: Config, skip: int = 0) -> None:
        self.source = source
        self.bucket = bucket
        self.config = config
        self.skip = skip
        self._group_tokens: dict[tuple[int, int], int] = {}

    def problems(self, step: int) -> tuple[Problems, NDArray[np.int64]]:
        """Return the problems of a step, with leading [BOS] if the config says so, and their keys.

        After the last problem the data starts over, with other random positions.
        """
        size, total = self.config.batch_size, self.config.num_problems
        start = self.skip + step * size
        end = start + size
        parts, drawn = [], []
        for epoch in range(start // total, -(-end // total)):
            span = max(start - epoch * total, 0), min(end - epoch * total, total)
            parts.append(self.source.problems(*span))
            drawn.append(self.bucket.keys(*span, draw=epoch))
        problems, keys = concatenate(parts), np.concatenate(drawn)
        return prepend_bos(problems, keys, self.config.leading_bos), keys

    def padded(
        self, problems: Problems, keys: NDArray[np.int64], device: str, finer: int
    ) -> Iterator[Rows]:
        """Yield padded groups of rows of similar length; their number suits the device.

        `finer` divides the size of each group, down to one row.
        """
        rows, count = len(problems.lengths), self.config.groups
        if not rows:  # a process may get no row of a batch
            return iter(())
        # Expected lengths decide, not those of this batch, so that all steps have the same shapes.
        if device == "cpu":
            count = max(count, round(rows * self._lengths.mean() / _TOKENS_A_GROUP))
        tokens = self._tokens_a_group(rows, count)
        if finer > 1:  # no last group may take all that is left
            count, tokens = rows, tokens // finer
        return groups_of_few_shapes(problems, keys, count, tokens, self._widths)

    def _tokens_a_group(self, rows: int, count: int) -> int:
        """Return the tokens per group, padding included, if `count` equal groups take `rows`."""
        if (rows, count) not in self._group_tokens:
            typical = np.quantile(self._lengths, (np.arange(rows, 0, -1) - 0.5) / rows)
            lengths = typical.round().astype(np.int64)
            tokens, last = int(lengths.sum()) // count, np.inf
            while last > tokens:
                tokens += 1 + tokens // 100
                *_, (left, width) = few_shapes(lengths, count, tokens, self._widths)
                last = (left.stop - left.start) * width
            self._group_tokens[rows, count] = tokens
        return self._group_tokens[rows, count]

    @cached_property
    def _widths(self) -> NDArray[np.int64]:
        """Widths of groups, evenly spaced up to the longest row, where position tables may end."""
        step = -(-self.longest // _WIDTHS)
        return np.unique(np.minimum(step * np.arange(1, _WIDTHS + 1), self.longest))

    def packed(self, problems: Problems, keys: NDArray[np.int64], finer: int) -> Iterator[Rows]:
        """Yield all rows, packed into `finer` groups, of the same shape in almost every step."""
        count = len(problems.lengths)
        if count:
            capacity = self._capacity(-(-count // finer), self._lengths)
            for rows in np.array_split(np.arange(count), min(finer, count)):
                yield pack(problems, keys, rows, capacity, self.longest)

    @property
    def longest(self) -> int:
        """Length of the longest row of inputs."""
        return self.bucket.longest - 1 + self.config.leading_bos

    @cached_property
    def most_answers(self) -> int:
        """Scored tokens of a batch for which a recorded step has room, like that for all tokens."""
        few = self._first
        return self._capacity(self.config.batch_size, few.lengths - few.prompt_lengths)

    def _capacity(self, rows: int, lengths: NDArray[np.int64]) -> int:
        """Return the tokens reserved for `rows` rows, enough in almost every step."""
        four_deviations = 4 * rows**0.5 * lengths.std()
        return -(-int(rows * lengths.mean() + four_deviations) // 128) * 128

    @property
    def _lengths(self) -> NDArray[np.int64]:
        """Input lengths of `_first`."""
        return self._first.lengths - 1

    @cached_property
    def _first(self) -> Problems:
        """The problems of the first 16 batches, whose lengths represent those of all batches."""
        count = 16 * self.config.batch_size
        few, keys = self.bucket.problems(0, count), self.bucket.keys(0, count)
        return prepend_bos(few, keys, self.config.leading_bos)
