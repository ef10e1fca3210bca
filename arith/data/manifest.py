"""What a dataset's folder says about itself: `manifest.json`."""

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.npy import HEADER_BYTES
from tape_arith.arith.errors import Corrupt, Failure, UsageError
from tape_arith.arith.files import (
    Count,
    Part,
    Positive,
    Sha256,
    Share,
    Strict,
    Text,
    read_document,
    write_document,
)
from tape_arith.arith.tasks import vocabulary

FILE = "manifest.json"
KIND = "dataset"
REMEDY = (
    "tape-arith generate --fresh --out {folder}, with the options that made it (--preset, --set, "
    "--task, --count, --seed), writes it again"
)
# The name is joined to the folder's path: it must not lead out of it.
_FileName = Annotated[str, Field(pattern=r"^(tokens|lengths)-[0-9]{5,}\.npy$")]


class Identity(Part):
    """What decides every byte of the problems in a dataset."""

    task: Text
    version: Count
    seed: Count
    split: Text
    max_digits: Positive
    count: Positive

    def __str__(self) -> str:
        return (
            f"{self.count:,} problems of {self.task} up to {self.max_digits} digits "
            f"(seed {self.seed}, split {self.split}, version {self.version})"
        )


@dataclass(frozen=True)
class Shard(Strict):
    """One run of consecutive problems on disk, in two .npy files beside the manifest."""

    tokens: _FileName
    """name of the file of all tokens, uint8[num_tokens]"""
    lengths: _FileName
    """name of the file of the problems' lengths in tokens, uint16[count]"""
    count: Positive
    """problems"""
    num_tokens: Positive
    tokens_sha256: Sha256
    lengths_sha256: Sha256


class _ManifestDocument(Identity):
    kind: ClassVar[str] = KIND
    remedy: ClassVar[str] = REMEDY

    pairs: Positive
    vocabulary: list[str]
    num_tokens: Positive
    sha256: Sha256
    shards: tuple[Shard, ...]
    expected_seen: list[list[Share]]

    @property
    def identity(self) -> Identity:
        return Identity(**{name: getattr(self, name) for name in Identity.model_fields})


@dataclass(frozen=True)
class Manifest:
    """A finished dataset: the first `count` problems of `bucket`.

    The file also holds "expected_seen", see `expected_seen`.
    """

    bucket: Bucket
    count: int
    shards: tuple[Shard, ...]

    @property
    def sha256(self) -> str:
        """Hex hash over the hashes of all shards."""
        return hashlib.sha256(
            "".join(shard.tokens_sha256 + shard.lengths_sha256 for shard in self.shards).encode()
        ).hexdigest()

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self.shards)

    def save(self, directory: Path) -> None:
        """Write the file, whole or not at all."""
        content = {
            **identity(self.bucket, self.count).model_dump(),
            "pairs": self.bucket.num_pairs,
            "vocabulary": _vocabulary(),
            "num_tokens": self.num_tokens,
            "sha256": self.sha256,
            "shards": [asdict(shard) for shard in self.shards],
            "expected_seen": expected_seen(self.bucket, self.count),
        }
        write_document(directory / FILE, content, KIND)

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Read and check the manifest in `directory`.

        Raises UsageError if there is none; Failure if it is corrupt, or of a task or a version that
        this installation does not have.
        """
        path = directory / FILE
        if not path.exists():
            raise UsageError(
                f"{directory} holds no finished dataset (no {FILE}): "
                f"tape-arith generate --out {directory}, with the options of what is to be in it "
                "(--preset, --set, --task, --count, --seed), makes or finishes one"
            )
        document = _read(directory)
        manifest = cls(_bucket(document, path), document.count, document.shards)
        if sum(shard.count for shard in manifest.shards) != manifest.count:
            raise Corrupt(
                f"{path} is corrupt: its shards do not hold {manifest.count} problems; "
                f"{again(directory)}"
            )
        if document.sha256 != manifest.sha256:
            raise Corrupt(f"{path} is corrupt: the hash of its shards differs; {again(directory)}")
        return manifest

    def check_sizes(self, directory: Path) -> None:
        """Raise Failure, naming the first file that is missing or has the wrong size."""
        for shard in self.shards:
            for name, size in (
                (shard.tokens, shard.num_tokens),
                (shard.lengths, shard.count * LENGTH_TYPE.itemsize),
            ):
                path = directory / name
                try:
                    file_size = path.stat().st_size
                except OSError as error:
                    raise Failure(
                        f"cannot read {path}: {error.strerror}; {again(directory)}"
                    ) from error
                if file_size != HEADER_BYTES + size:
                    raise Failure(
                        f"{path} is not the shard in the manifest ({file_size:,} bytes instead of "
                        f"{HEADER_BYTES + size:,}); {again(directory)}"
                    )


def again(directory: Path) -> str:
    """Say what to do about a corrupt dataset, at the end of an error."""
    return REMEDY.format(folder=directory)


def read_identity(directory: Path) -> Identity:
    """Return what the dataset in `directory` is. Raises Failure if its manifest is corrupt."""
    return _read(directory).identity


def identity(bucket: Bucket, count: int) -> Identity:
    """Return the identity of the first `count` problems of `bucket`."""
    return Identity(
        task=bucket.task,
        version=bucket.version,
        seed=bucket.seed,
        split=bucket.split,
        max_digits=bucket.max_digits,
        count=count,
    )


def expected_seen(bucket: Bucket, count: int) -> list[list[float]]:
    """Return the share of evaluation problems that can be expected among the training problems.

    Row i - 1, column j - 1 is for operands of i and j digits. Longer ones have none in training.

    Evaluation problems are drawn from another stream, uniformly from the N ordered pairs of such
    operands. With n of the first `count` training problems in that cell, each of the N is among
    them with probability 1 - (1 - 1/N)**n. With 12,500 drawn: all 81 of (1, 1), 1.5 % of (3, 3),
    one in 600,000 of (5, 5). N of 300 and 300 digits is past every float: it stays an integer.
    """
    numbers = [9 * 10 ** (digits - 1) for digits in range(1, bucket.max_digits + 1)]
    blocks, rest = divmod(count, bucket.num_pairs)
    drawn = np.full((bucket.max_digits, bucket.max_digits), blocks)
    lengths = bucket.operand_lengths(count - rest, count)
    np.add.at(drawn, (lengths[:, 0] - 1, lengths[:, 1] - 1), 1)
    return [
        # 1 / N of two integers is rounded rightly, to 0.0 if it is past every float.
        [
            -math.expm1(n * math.log1p(-1 / (first * second)))
            for second, n in zip(numbers, row, strict=True)
        ]
        for first, row in zip(numbers, drawn.tolist(), strict=True)
    ]


def _read(directory: Path) -> _ManifestDocument:
    return read_document(directory / FILE, _ManifestDocument)


def _vocabulary() -> list[str]:
    return [*vocabulary.SPECIAL, *vocabulary.SYMBOLS]


def _bucket(document: _ManifestDocument, path: Path) -> Bucket:
    try:
        bucket = Bucket(document.task, document.max_digits, document.seed, document.split)
    except UsageError as error:
        raise Failure(f"{path}: {error}") from error
    if document.version != bucket.version:
        raise Failure(
            f"{path} is of version {document.version} of {bucket.task}; this tape-arith makes and "
            f"reads version {bucket.version}: install the one that made it, or {again(path.parent)}"
        )
    if document.vocabulary != _vocabulary():
        raise Failure(f"{path} has another vocabulary than this tape-arith; {again(path.parent)}")
    return bucket
