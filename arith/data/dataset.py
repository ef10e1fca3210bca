"""Read a dataset on disk: the tokens of its problems end to end, their lengths, and a manifest.

The manifest is written last, so a folder with a manifest is complete.
"""

import hashlib
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.documents import (
    Count,
    Part,
    Positive,
    Sha256,
    Text,
    read_document,
    write_validated,
)
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import sha256
from tape_arith.arith.tasks.families.numbers import Int64, UInt8
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO, SYMBOLS
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems

FILE, TOKENS, LENGTHS = "manifest.json", "tokens.npy", "lengths.npy"
REMEDY = (
    "tape-arith generate --fresh --out {folder}, with the options of the dataset (--preset, --set, "
    "--task, --count, --seed), writes it again"
)
_EQUALS = DIGIT_ZERO + SYMBOLS.index("=")
HEADER_BYTES = 128
"""Size of numpy's header of a one-dimensional array, of any length."""
_PLACES, _COMPARED = 20, 1_000
"""`verify` compares _COMPARED problems at each of _PLACES places."""


class Manifest(Part):
    """manifest.json of a finished dataset."""

    kind: ClassVar[str] = "dataset"
    remedy: ClassVar[str] = REMEDY

    task: Text
    version: Count
    seed: Count
    split: Text
    max_digits: Positive
    count: Positive
    max_operands: Count = 0
    """Absent from the file if the task has no axis of operands."""
    pairs: Positive
    """Number of cells; for addition, pairs of operand lengths."""
    vocabulary: list[str]
    num_tokens: Positive
    tokens_sha256: Sha256
    lengths_sha256: Sha256

    @property
    def bucket(self) -> Bucket:
        """The stream whose first `count` problems the dataset holds."""
        return Bucket(self.task, self.max_digits, self.seed, self.split, self.max_operands)

    def holds(self, bucket: Bucket, count: int) -> bool:
        """Tell whether the dataset has the first `count` problems of `bucket`."""
        return (self.bucket, self.count) == (bucket, count)

    def __str__(self) -> str:
        return self.bucket.describe(self.count)

    @property
    def sha256(self) -> str:
        """Hash of both files' hashes."""
        return hashlib.sha256((self.tokens_sha256 + self.lengths_sha256).encode()).hexdigest()

    def files(self, directory: Path) -> list[tuple[Path, int, str]]:
        """Return path, size in bytes and SHA-256 of both files."""
        length_bytes = self.count * LENGTH_TYPE.itemsize
        return [
            (directory / TOKENS, HEADER_BYTES + self.num_tokens, self.tokens_sha256),
            (directory / LENGTHS, HEADER_BYTES + length_bytes, self.lengths_sha256),
        ]

    @classmethod
    def write(cls, directory: Path, bucket: Bucket, count: int, num_tokens: int) -> "Manifest":
        """Write the manifest of a dataset whose two files are in `directory`."""
        manifest = cls(
            **asdict(bucket),
            version=bucket.version,
            count=count,
            pairs=bucket.num_cells,
            vocabulary=_vocabulary(bucket.task),
            num_tokens=num_tokens,
            tokens_sha256=sha256(directory / TOKENS),
            lengths_sha256=sha256(directory / LENGTHS),
        )
        absent = set() if bucket.max_operands else {"max_operands"}
        write_validated(directory / FILE, manifest.model_dump(exclude=absent), cls)
        return manifest

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Read the manifest in `directory` and check that both files exist.

        Raises UsageError if there is no manifest; Failure if the manifest is corrupt, this
        installation lacks its task or version, or a file is missing or has the wrong size.
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
                f"tape-arith generate --out {directory}, with its options (--preset, --set, "
                "--task, --count, --seed), writes one"
            )
        manifest = read_document(path, cls)
        try:
            version = manifest.bucket.version
        except UsageError as error:
            raise Failure(f"{path}: {error}") from error
        if (manifest.version, manifest.vocabulary) != (version, _vocabulary(manifest.task)):
            raise Failure(
                f"{path} is of version {manifest.version} of {manifest.task} or has another "
                f"vocabulary; this tape-arith reads and writes version {version}: install the one "
                f"that wrote it, or {_remedy(directory)}"
            )
        for file, size, _ in manifest.files(directory):
            if not file.is_file() or file.stat().st_size != size:
                raise Failure(f"{file} is missing or not of {size:,} bytes; {_remedy(directory)}")
        return manifest


class Dataset:
    """A dataset that is read through memory maps.

    Raises UsageError if `directory` holds none; Failure, naming the file, if it is corrupt.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self.manifest = Manifest.load(self.directory)
        self.bucket = self.manifest.bucket

    def __len__(self) -> int:
        return self.manifest.count

    def problems(self, start: int, stop: int) -> Problems:
        """Return problems start .. stop - 1, equal to `bucket.problems(start, stop)`.

        Raises ValueError beyond the dataset's end; Failure, naming the file, if a file is corrupt.
        """
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"{self.directory} holds {len(self)} problems from 0 on: there is no range "
                f"{start} .. {stop}"
            )
        tokens, ends = self._content
        part = ends[start : stop + 1]
        read, lengths = np.array(tokens[part[0] : part[-1]]), np.diff(part)
        axis_lengths = self.bucket.axis_lengths(start, stop)
        prompt_lengths = _prompt_lengths(read, lengths)
        return Problems(
            tokens=read,
            lengths=lengths,
            prompt_lengths=prompt_lengths,
            axis_lengths=axis_lengths,
            final_lengths=load_task(self.bucket.task).final_lengths(axis_lengths, prompt_lengths),
        )

    def check_hashes(self) -> None:
        """Raise Failure, naming all corrupt files, if there are any."""
        # Hashing, a second per GB, detects a flipped digit.
        files = self.manifest.files(self.directory)
        if wrong := [str(file) for file, _, digest in files if sha256(file) != digest]:
            raise Failure(
                f"{', '.join(wrong)}: corrupt, the hash is wrong; {_remedy(self.directory)}"
            )

    @cached_property
    def _content(self) -> tuple[UInt8, Int64]:
        """All tokens, and where problems end: 0, then each end."""
        self.check_hashes()
        # Plain arrays, since slicing a memmap takes ten times as long.
        tokens, lengths = (
            np.asarray(np.load(file, mmap_mode="r"))
            for file, *_ in self.manifest.files(self.directory)
        )
        return tokens, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def verify(directory: Path) -> Manifest:
    """Check the dataset in `directory` against its manifest and its generator.

    Hashes both files and generates some problems again. Raises Failure, naming the corrupt files.
    """
    dataset = Dataset(directory)
    dataset.check_hashes()
    last = max(len(dataset) - _COMPARED, 0)
    for start in sorted(set(np.linspace(0, last, _PLACES, dtype=int).tolist())):
        stop = min(start + _COMPARED, len(dataset))
        read, made = (source.problems(start, stop) for source in (dataset, dataset.bucket))
        if not np.array_equal(read.tokens, made.tokens):
            raise Failure(
                f"{directory / TOKENS} does not hold the problems of this tape-arith; "
                f"{_remedy(directory)}"
            )
    return dataset.manifest


def _remedy(directory: Path) -> str:
    return REMEDY.format(folder=directory)


def _vocabulary(task: str) -> list[str]:
    return list(load_task(task).vocabulary.names)


def _prompt_lengths(tokens: UInt8, lengths: Int64) -> Int64:
    """Count the tokens of each problem through its first '=', int64[n]."""
    starts = np.cumsum(lengths) - lengths
    equals = np.flatnonzero(tokens == _EQUALS)
    return equals[np.searchsorted(equals, starts)] - starts + 1
