"""A dataset on disk, read through memory maps.

n  problems asked for
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.manifest import Manifest, Shard, again
from tape_arith.arith.data.npy import HEADER_BYTES, npy_header
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import open_file, sha256
from tape_arith.arith.tasks import vocabulary
from tape_arith.arith.tasks.task import Problems, load_task

_STRIDE = 1024  # problems between two token offsets that are kept: one for each would be 160 MB
_COMPARED = 1000  # problems of each shard that `verify` makes anew


class Dataset:
    """The dataset in `directory`.

    Errors: UsageError where there is none; Failure where it is corrupt, naming the file.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self.manifest = Manifest.load(self.directory)
        self.manifest.check_sizes(self.directory)
        counts = [shard.count for shard in self.manifest.shards]
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._open: dict[int, _OpenShard] = {}

    @property
    def bucket(self) -> Bucket:
        """Whose first problems these are."""
        return self.manifest.bucket

    def __len__(self) -> int:
        return self.manifest.count

    def problems(self, start: int, stop: int) -> Problems:
        """Problems start .. stop - 1, equal to `bucket.problems(start, stop)`.

        Errors: ValueError outside of the dataset; Failure, naming the shard, where what is on disk
        cannot be those problems.
        """
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"{self.directory} holds problems 0 .. {len(self)}: not {start}:{stop}"
            )
        operand_lengths = self.bucket.operand_lengths(start, stop)
        task = load_task(self.bucket.task)
        prompt_lengths = task.prompt_lengths(operand_lengths)
        tokens, lengths = [np.zeros(0, np.uint8)], [np.zeros(0, np.int64)]
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        at = start
        while at < stop:
            shard, first = self._shard(number), int(self._starts[number])
            last = min(stop, int(self._starts[number + 1]))
            some_tokens, some_lengths = shard.read(at - first, last - first)
            shard.check(some_tokens, some_lengths, prompt_lengths[at - start : last - start])
            tokens.append(some_tokens)
            lengths.append(some_lengths)
            at, number = last, number + 1
        return Problems(
            tokens=np.concatenate(tokens),
            lengths=np.concatenate(lengths),
            prompt_lengths=prompt_lengths,
            operand_lengths=operand_lengths,
            final_lengths=task.final_lengths(operand_lengths),
        )

    def _shard(self, number: int) -> "_OpenShard":
        if number not in self._open:
            self._open[number] = _OpenShard.of(self.directory, self.manifest.shards[number])
        return self._open[number]


@dataclass(frozen=True)
class _OpenShard:
    path: Path
    """of the tokens"""
    tokens: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.uint16]
    offsets: npt.NDArray[np.int64]
    """where the tokens of problems 0, _STRIDE, 2 _STRIDE, ... begin"""

    @classmethod
    def of(cls, directory: Path, shard: Shard) -> "_OpenShard":
        path = directory / shard.tokens
        tokens = _mapped(path, np.dtype(np.uint8), shard.num_tokens)
        lengths = _mapped(directory / shard.lengths, LENGTH_TYPE, shard.count)
        # A flipped digit is a wrong sum that nothing below would notice; a second a GB settles it.
        for file, digest in (
            (shard.tokens, shard.tokens_sha256),
            (shard.lengths, shard.lengths_sha256),
        ):
            if sha256(directory / file) != digest:
                raise Failure(f"{directory / file} is corrupt: wrong hash; {again(directory)}")
        steps = np.arange(0, shard.count, _STRIDE)
        ends = np.cumsum(np.add.reduceat(lengths, steps, dtype=np.int64))
        if ends[-1] != shard.num_tokens:
            raise Failure(
                f"{directory / shard.lengths} is corrupt: it counts {ends[-1]:,} tokens where "
                f"{shard.tokens} has {shard.num_tokens:,}; {again(directory)}"
            )
        return cls(path, tokens, lengths, np.concatenate([[0], ends]))

    def read(self, start: int, stop: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        lengths = self.lengths[start:stop].astype(np.int64)
        kept = start // _STRIDE
        before = self.lengths[kept * _STRIDE : start].sum(dtype=np.int64)
        first = int(self.offsets[kept] + before)
        return np.asarray(self.tokens[first : first + int(lengths.sum())]), lengths

    def check(
        self,
        tokens: npt.NDArray[np.uint8],
        lengths: npt.NDArray[np.int64],
        prompt_lengths: npt.NDArray[np.int64],
    ) -> None:
        """Cheap signs that these tokens are these problems: '=' and the end token in place."""
        ends = np.cumsum(lengths)
        equals = ends - lengths + prompt_lengths - 1
        good = (
            bool((lengths > prompt_lengths).all())
            and bool((tokens[ends - 1] == vocabulary.EOS).all())
            and bool((tokens[equals] == vocabulary.token("=")).all())
        )
        if not good:
            raise Failure(
                f"{self.path} is corrupt or of another dataset (tape-arith generate --verify "
                f"{self.path.parent} checks every file); {again(self.path.parent)}"
            )


def verify(directory: Path) -> Manifest:
    """Check the dataset in `directory` against its manifest and its generator.

    Every file is hashed, and the first problems of each shard are made anew. Errors: Failure that
    names every file that is wrong.
    """
    dataset = Dataset(directory)
    wrong = []
    for shard in dataset.manifest.shards:
        for name, expected in (
            (shard.tokens, shard.tokens_sha256),
            (shard.lengths, shard.lengths_sha256),
        ):
            if sha256(dataset.directory / name) != expected:
                wrong.append(name)
    if wrong:
        raise Failure(
            f"{directory}: {', '.join(wrong)} not as the manifest's hash says; {again(directory)}"
        )
    start = 0
    for shard in dataset.manifest.shards:
        stop = start + min(shard.count, _COMPARED)
        found, right = dataset.problems(start, stop), dataset.bucket.problems(start, stop)
        if not np.array_equal(found.tokens, right.tokens):
            raise Failure(
                f"{directory}: {shard.tokens} does not hold the problems that its manifest "
                f"describes; {again(directory)}"
            )
        start += shard.count
    return dataset.manifest


def _mapped(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    # What numpy's reader would make of a header is not asked: there is one that is right.
    with open_file(path) as file:
        right = file.read(HEADER_BYTES) == npy_header(dtype, count)
    if not right:
        raise Failure(
            f"{path} is not the shard in the manifest (its header is not that of "
            f"{dtype}[{count}]); {again(path.parent)}"
        )
    try:
        array = np.memmap(path, dtype, "r", offset=HEADER_BYTES, shape=(count,))
    except (OSError, ValueError) as error:
        raise Failure(f"cannot read {path}: {error}; {again(path.parent)}") from error
    # A plain array of the same memory: slicing a memmap costs ten times as much.
    return np.asarray(array).view(np.ndarray)
