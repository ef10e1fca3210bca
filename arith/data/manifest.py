"""What a dataset's folder says about itself: `manifest.json`."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from arith.checking import Wrong, digest, text, whole
from arith.data import vocabulary
from arith.data.bucket import LENGTH_TYPE, Bucket
from arith.data.expected_seen import expected_seen
from arith.data.npy import HEADER_BYTES
from arith.errors import Failure, UsageError
from arith.files import read_json, write_json

FILE = "manifest.json"
KIND = "dataset"


@dataclass(frozen=True)
class Shard:
    """One run of consecutive problems on disk, in two .npy files beside the manifest."""

    tokens: str
    """name of the file of all tokens, uint8[num_tokens]"""
    lengths: str
    """name of the file of the problems' lengths in tokens, uint16[count]"""
    count: int
    """problems"""
    num_tokens: int
    tokens_sha256: str
    lengths_sha256: str

    @classmethod
    def of(cls, entry: object, path: Path) -> "Shard":
        """The shard that a JSON object describes. Errors: Failure naming `path`."""
        names = [field.name for field in fields(cls)]
        if not isinstance(entry, dict) or entry.keys() != set(names):
            raise Failure(f"{path} is corrupt: a shard has the keys {', '.join(names)}")
        try:
            shard = cls(
                tokens=text(entry["tokens"], "tokens"),
                lengths=text(entry["lengths"], "lengths"),
                count=whole(entry["count"], "count", 1),
                num_tokens=whole(entry["num_tokens"], "num_tokens", 1),
                tokens_sha256=digest(entry["tokens_sha256"], "tokens_sha256"),
                lengths_sha256=digest(entry["lengths_sha256"], "lengths_sha256"),
            )
        except Wrong as error:
            raise Failure(f"{path} is corrupt: {error}") from error
        # A name is joined to the folder's path: it must not lead out of it.
        if Path(shard.tokens).name != shard.tokens or Path(shard.lengths).name != shard.lengths:
            raise Failure(f"{path} is corrupt: a shard lies beside its manifest")
        return shard


@dataclass(frozen=True)
class Manifest:
    """A finished dataset: the first `count` problems of `bucket`.

    In the file stands, beside this, "expected_seen": row i - 1, column j - 1 is the share of the
    evaluation problems with operands of i and j digits that can be expected to occur among the
    training problems (`arith.data.expected_seen`). Cells beyond `max_digits` are not in it: their
    share is 0, by construction.
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

    @property
    def expected_seen(self) -> list[list[float]]:
        """As in the file: see above."""
        return expected_seen(self.bucket, self.count)

    def save(self, directory: Path) -> None:
        """Write the file, whole or not at all."""
        content = {
            "kind": KIND,
            **identity(self.bucket, self.count),
            "pairs": self.bucket.num_pairs,
            "vocabulary": [*vocabulary.SPECIAL, *vocabulary.SYMBOLS],
            "num_tokens": self.num_tokens,
            "sha256": self.sha256,
            "shards": [asdict(shard) for shard in self.shards],
            "expected_seen": self.expected_seen,
        }
        write_json(directory / FILE, content)

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Read and check the manifest in `directory`.

        Errors: UsageError where there is none; Failure where it is corrupt, or of a task or a
        version that this installation does not have.
        """
        path = directory / FILE
        if not path.exists():
            raise UsageError(
                f"{directory} holds no finished dataset (no {FILE}): "
                f"tape-arith generate --out {directory}, with the options of what is to be in it "
                "(--preset, --set, --task, --count, --seed), makes or finishes one"
            )
        content = read(directory)
        bucket = _bucket(content, path)
        count = _get(content, "count", int, path)
        shards = tuple(Shard.of(entry, path) for entry in _get(content, "shards", list, path))
        manifest = cls(bucket, count, shards)
        if sum(shard.count for shard in shards) != count:
            raise Failure(
                f"{path} is corrupt: its shards do not hold {count} problems; {again(directory)}"
            )
        if content.get("sha256") != manifest.sha256:
            raise Failure(f"{path} is corrupt: the hash of its shards differs; {again(directory)}")
        return manifest

    def check_sizes(self, directory: Path) -> None:
        """Errors: Failure naming the first file that is missing or not of the size it should be."""
        for shard in self.shards:
            for name, size in (
                (shard.tokens, shard.num_tokens),
                (shard.lengths, shard.count * LENGTH_TYPE.itemsize),
            ):
                path = directory / name
                try:
                    found = path.stat().st_size
                except OSError as error:
                    raise Failure(
                        f"cannot read {path}: {error.strerror}; {again(directory)}"
                    ) from error
                if found != HEADER_BYTES + size:
                    raise Failure(
                        f"{path} is not the shard in the manifest ({found:,} bytes instead of "
                        f"{HEADER_BYTES + size:,}); {again(directory)}"
                    )


def again(directory: Path) -> str:
    """What to do about a corrupt dataset, at the end of an error."""
    return (
        f"tape-arith generate --fresh --out {directory}, with the options that made it (--preset, "
        "--set, --task, --count, --seed), writes it again"
    )


def read(directory: Path) -> dict[str, Any]:
    """The manifest's content, unchecked. Errors: Failure where it is no manifest of ours."""
    try:
        return read_json(directory / FILE, KIND)
    except Failure as error:
        raise Failure(f"{error}; {again(directory)}") from error


def identity(bucket: Bucket, count: int) -> dict[str, str | int]:
    """What decides every byte of a dataset's shards."""
    return {
        "task": bucket.task,
        "version": bucket.version,
        "seed": bucket.seed,
        "split": bucket.split,
        "max_digits": bucket.max_digits,
        "count": count,
    }


def described(content: dict[str, Any]) -> str:
    """An identity as a person reads it."""
    count = content.get("count")
    number = f"{count:,}" if isinstance(count, int) else "?"
    return (
        f"{number} problems of {content.get('task')} up to {content.get('max_digits')} digits "
        f"(seed {content.get('seed')}, split {content.get('split')}, "
        f"version {content.get('version')})"
    )


def _bucket(content: dict[str, Any], path: Path) -> Bucket:
    values = {
        name: _get(content, name, kind, path)
        for name, kind in (("task", str), ("max_digits", int), ("seed", int), ("split", str))
    }
    try:
        bucket = Bucket(**values)
    except UsageError as error:
        raise Failure(f"{path}: {error}") from error
    version = _get(content, "version", int, path)
    if version != bucket.version:
        raise Failure(
            f"{path} is of version {version} of {bucket.task}; this tape-arith makes and reads "
            f"version {bucket.version}: install the one that made it, or {again(path.parent)}"
        )
    expected: Sequence[str] = [*vocabulary.SPECIAL, *vocabulary.SYMBOLS]
    if content.get("vocabulary") != expected:
        raise Failure(f"{path} has another vocabulary than this tape-arith; {again(path.parent)}")
    return bucket


def _get(content: dict[str, Any], name: str, kind: type, path: Path) -> Any:
    value = content.get(name)
    if type(value) is not kind:  # not isinstance: True is no number of problems
        raise Failure(f"{path} is corrupt: {name} is {value!r}; {again(path.parent)}")
    return value
