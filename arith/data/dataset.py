"""A dataset on disk: shards of problems and the manifest that describes them.

A shard is two .npy files: the tokens of its problems, end to end, and the problems' lengths. The
manifest is written last, so that a folder with a manifest is complete.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.documents import (
    Count,
    Part,
    Positive,
    Sha256,
    Text,
    read_document,
    write_document,
)
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import sha256
from tape_arith.arith.tasks.families.numbers import Int64, UInt8
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, SYMBOLS
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems

FILE = "manifest.json"
REMEDY = (
    "tape-arith generate --fresh --out {folder}, with the options that made it (--preset, --set, "
    "--task, --count, --seed), writes it again"
)
_EQUALS = DIGIT_ZERO + SYMBOLS.index("=")
HEADER_BYTES = 128
"""Bytes that numpy writes before a one-dimensional array, whatever its length."""
_COMPARED = 1000  # problems of each shard that `verify` generates again
# The name is joined to the folder's path and must not lead out of the folder.
_FileName = Annotated[str, Field(pattern=r"^(tokens|lengths)-[0-9]{5,}\.npy$")]


class Identity(Part):
    """All that decides the bytes of a dataset's problems."""

    task: Text
    version: Count
    seed: Count
    split: Text
    max_digits: Positive
    count: Positive
    max_operands: Count = 0
    """Not in the file of a task without an axis of operands."""

    @classmethod
    def of(cls, bucket: Bucket, count: int) -> "Identity":
        """Return the identity of the first `count` problems of `bucket`."""
        facts = {key: getattr(bucket, key) for key in Identity.model_fields if key != "count"}
        return Identity(**facts, count=count)

    @property
    def identity(self) -> "Identity":
        """The fields of Identity alone, without those of a subclass."""
        return Identity(**{name: getattr(self, name) for name in Identity.model_fields})

    def content(self) -> dict[str, Any]:
        """Return the content of the file."""
        return self.model_dump(exclude=set() if self.max_operands else {"max_operands"})

    @property
    def bucket(self) -> Bucket:
        """The stream whose first `count` problems the dataset holds."""
        return Bucket(self.task, self.max_digits, self.seed, self.split, self.max_operands)

    def __str__(self) -> str:
        operands = f"{self.max_operands} operands of " if self.max_operands else ""
        return (
            f"{self.count:,} problems of {self.task} up to {operands}{self.max_digits} digits "
            f"(seed {self.seed}, split {self.split}, version {self.version})"
        )


class Shard(Part):
    """A run of consecutive problems on disk, in two .npy files beside the manifest."""

    tokens: _FileName
    """Name of the file of all tokens, uint8[num_tokens]."""
    lengths: _FileName
    """Name of the file of the problems' lengths in tokens, uint16[count]."""
    count: Positive
    num_tokens: Positive
    tokens_sha256: Sha256
    lengths_sha256: Sha256

    def files(self, directory: Path) -> list[tuple[Path, int, str]]:
        """Return path, size in bytes and SHA-256 of both files."""
        length_bytes = self.count * LENGTH_TYPE.itemsize
        return [
            (directory / self.tokens, HEADER_BYTES + self.num_tokens, self.tokens_sha256),
            (directory / self.lengths, HEADER_BYTES + length_bytes, self.lengths_sha256),
        ]


class Manifest(Identity):
    """manifest.json of a finished dataset."""

    kind: ClassVar[str] = "dataset"
    remedy: ClassVar[str] = REMEDY

    pairs: Positive
    """Number of cells: for addition, pairs of operand lengths."""
    vocabulary: list[str]
    num_tokens: Positive
    sha256: Sha256
    """Hash over the hashes of all shards."""
    shards: tuple[Shard, ...]

    @model_validator(mode="after")
    def _check_shards(self) -> Self:
        count = sum(shard.count for shard in self.shards)
        if (count, _joint_sha256(self.shards)) != (self.count, self.sha256):
            raise ValueError("its shards have another number of problems or another hash")
        return self

    @classmethod
    def write(cls, directory: Path, identity: Identity, shards: tuple[Shard, ...]) -> "Manifest":
        """Write the manifest of a dataset whose shards are on disk."""
        manifest = cls(
            **identity.model_dump(),
            pairs=identity.bucket.num_cells,
            vocabulary=_vocabulary(identity),
            num_tokens=sum(shard.num_tokens for shard in shards),
            sha256=_joint_sha256(shards),
            shards=shards,
        )
        write_document(directory / FILE, manifest.content(), cls.kind)
        return manifest

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Read the manifest in `directory` and check that the files it lists are there.

        Raises UsageError if there is no manifest; Failure if it is corrupt, if this installation
        lacks its task or version, or if a file is missing or has the wrong size.
        """
        path = directory / FILE
        if directory.is_file():
            raise UsageError(
                f"{directory} is a file, and a dataset is a folder: tape-arith generate without "
                "--format makes one"
            )
        if not path.exists():
            raise UsageError(
                f"{directory} holds no finished dataset (no {FILE}): "
                f"tape-arith generate --out {directory}, with the options of what is to be in it "
                "(--preset, --set, --task, --count, --seed), makes or finishes one"
            )
        manifest = read_document(path, cls)
        try:
            version = manifest.bucket.version
        except UsageError as error:
            raise Failure(f"{path}: {error}") from error
        if (manifest.version, manifest.vocabulary) != (version, _vocabulary(manifest)):
            raise Failure(
                f"{path} is of version {manifest.version} of {manifest.task} or has another "
                f"vocabulary; this tape-arith makes and reads version {version}: install the one "
                f"that made it, or {_remedy(directory)}"
            )
        for shard in manifest.shards:
            for file, size, _ in shard.files(directory):
                if not file.is_file() or file.stat().st_size != size:
                    raise Failure(
                        f"{file} is missing or not of {size:,} bytes; {_remedy(directory)}"
                    )
        return manifest


class Dataset:
    """The dataset in `directory`, read through memory maps.

    Raises UsageError if there is no dataset; Failure, naming the file, if it is corrupt.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self.manifest = Manifest.load(self.directory)
        self.bucket = self.manifest.bucket
        self._stops = np.cumsum([shard.count for shard in self.manifest.shards])
        self._open: tuple[int, UInt8, Int64] | None = None

    def __len__(self) -> int:
        return self.manifest.count

    def problems(self, start: int, stop: int) -> Problems:
        """Return problems start .. stop - 1, equal to `bucket.problems(start, stop)`.

        Raises ValueError beyond the dataset's end; Failure, naming the file, if a shard is corrupt.
        """
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"{self.directory} holds {len(self)} problems from 0 on: there is no range "
                f"{start} .. {stop}"
            )
        tokens, lengths = [np.zeros(0, np.uint8)], [np.zeros(0, np.int64)]
        first = start
        while first < stop:
            number = int(np.searchsorted(self._stops, first, side="right"))
            shard_tokens, ends = self._shard(number)
            last = min(stop, int(self._stops[number]))
            skipped = int(self._stops[number]) - (len(ends) - 1)  # problems of earlier shards
            part = ends[first - skipped : last - skipped + 1]
            tokens.append(shard_tokens[part[0] : part[-1]])
            lengths.append(np.diff(part))
            first = last
        axis_lengths = self.bucket.axis_lengths(start, stop)
        read, read_lengths = np.concatenate(tokens), np.concatenate(lengths)
        prompt_lengths = _prompt_lengths(read, read_lengths)
        return Problems(
            tokens=read,
            lengths=read_lengths,
            prompt_lengths=prompt_lengths,
            axis_lengths=axis_lengths,
            final_lengths=load_task(self.bucket.task).final_lengths(axis_lengths, prompt_lengths),
        )

    def check_hashes(self) -> None:
        """Raise Failure, naming the file, if a shard is corrupt."""
        for number in range(len(self.manifest.shards)):
            self._shard(number)

    def _shard(self, number: int) -> tuple[UInt8, Int64]:
        """Return a shard's tokens, and a 0 followed by the end index of each problem in them.

        Only one shard is open at a time, since training reads them in order.
        """
        if self._open is None or self._open[0] != number:
            files = self.manifest.shards[number].files(self.directory)
            for file, _, digest in files:
                # A flipped digit makes a wrong sum; hashing, a second per GB, finds it.
                if sha256(file) != digest:
                    raise Failure(f"{file} is corrupt: wrong hash; {_remedy(self.directory)}")
            # Plain arrays, since slicing a memmap takes ten times as long.
            tokens, lengths = (np.asarray(np.load(file, mmap_mode="r")) for file, *_ in files)
            ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            self._open = number, tokens, ends
        return self._open[1:]


def verify(directory: Path) -> Manifest:
    """Check the dataset in `directory` against its manifest and its generator.

    It hashes every file and generates the first problems of each shard again. Raises Failure,
    naming the files that are wrong.
    """
    dataset = Dataset(directory)
    shards = dataset.manifest.shards
    files = [file for shard in shards for file in shard.files(directory)]
    wrong = [path.name for path, _, digest in files if sha256(path) != digest]
    if wrong:
        raise Failure(f"{directory}: {', '.join(wrong)} not as written; {_remedy(directory)}")
    start = 0
    for shard in shards:
        stop = start + min(_COMPARED, shard.count)
        read, made = (source.problems(start, stop) for source in (dataset, dataset.bucket))
        if not np.array_equal(read.tokens, made.tokens):
            raise Failure(
                f"{directory / shard.tokens} does not hold the problems of this tape-arith; "
                f"{_remedy(directory)}"
            )
        start += shard.count
    return dataset.manifest


def _remedy(directory: Path) -> str:
    return REMEDY.format(folder=directory)


def _joint_sha256(shards: tuple[Shard, ...]) -> str:
    text = "".join(shard.tokens_sha256 + shard.lengths_sha256 for shard in shards)
    return hashlib.sha256(text.encode()).hexdigest()


def _vocabulary(identity: Identity) -> list[str]:
    return list(load_task(identity.task).vocabulary.names)


def _prompt_lengths(tokens: UInt8, lengths: Int64) -> Int64:
    """Return the tokens of each problem through its first '=', int64[n]."""
    starts = np.cumsum(lengths) - lengths
    equals = np.flatnonzero(tokens == _EQUALS)
    return equals[np.searchsorted(equals, starts)] - starts + 1
