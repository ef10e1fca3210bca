"""Writing a dataset to a folder, resumed after a kill.

A finished shard leaves a small shard-*.json; the manifest comes last and takes their place, so a
folder with a manifest is whole.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.manifest import (
    FILE,
    KIND,
    Identity,
    Manifest,
    Shard,
    identity,
    read_identity,
)
from tape_arith.arith.data.shard_files import Plan, Progress, ShardNote, write_shards
from tape_arith.arith.documents import read_document
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import parse_json, read_text, sha256

SHARD_SIZE = 1_000_000
"""Problems a shard. It does not change what a dataset holds, only where it is cut."""

_OURS = re.compile(r"(tokens|lengths)-\d{5,}\.npy|shard-\d{5,}\.json|manifest\.json")
_NOTE = re.compile(r"shard-\d{5,}\.json")
_PARTIAL = re.compile(rf"\.({_OURS.pattern})\.[\w-]+\.partial")


def generate(
    directory: Path,
    bucket: Bucket,
    count: int,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    fresh: bool = False,
    shard_size: int = SHARD_SIZE,
) -> Manifest:
    """Write the first `count` problems of `bucket` to `directory`; go on where a kill stopped it.

    A dataset that is there already, whole and the same, is left as it is and its manifest
    returned; `fresh` removes what is there of ours first. `progress` is called with the number of
    problems on disk so far, as it grows. A second process with the same folder waits for the first.

    Errors: UsageError where the folder holds anything else; Failure where the disk refuses, or a
    worker dies.
    """
    if count < 1:
        raise UsageError(f"a dataset has at least 1 problem, not {count}")
    if workers < 1:
        raise UsageError(f"at least 1 worker writes a dataset, not {workers}")
    plan = Plan(Path(directory), bucket, count, shard_size)
    try:
        plan.directory.mkdir(parents=True, exist_ok=True)
        with _alone(plan.directory):
            return _generate(plan, workers, progress, fresh)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(f"cannot write to the folder {directory}: {reason}") from error


def _generate(plan: Plan, workers: int, progress: Progress | None, fresh: bool) -> Manifest:
    _refuse_foreign(plan.directory)
    if fresh:
        _remove(plan.directory, _OURS)
    finished = _finished(plan)
    if finished is None:
        _remove(plan.directory, _PARTIAL)
        shards = write_shards(plan, _noted(plan), workers, progress)
        finished = Manifest(plan.bucket, plan.count, shards)
        finished.save(plan.directory)
    elif progress:
        progress(plan.count)
    # Also where a kill came between the manifest and this.
    _remove(plan.directory, _PARTIAL, _NOTE)
    return finished


def _noted(plan: Plan) -> dict[int, Shard]:
    """The shards that an earlier call finished and whose files are still what it wrote."""
    shards = {}
    for path in sorted(plan.directory.glob("shard-*.json")):
        if not _NOTE.fullmatch(path.name):  # somebody's copy
            continue
        note = read_document(path, ShardNote)
        if note.identity != plan.identity:
            raise _holds("an unfinished dataset of ", note.identity, plan)
        shard = note.shard
        # Hashing costs far less than writing it again.
        if _is(plan.directory / shard.tokens, shard.tokens_sha256) and _is(
            plan.directory / shard.lengths, shard.lengths_sha256
        ):
            shards[int(path.stem.removeprefix("shard-"))] = shard
    return shards


def _is(path: Path, expected: str) -> bool:
    return path.exists() and sha256(path) == expected


def _finished(plan: Plan) -> Manifest | None:
    path = plan.directory / FILE
    if not path.exists():
        return None
    held = read_identity(plan.directory)
    if held != identity(plan.bucket, plan.count):
        raise _holds("", held, plan)
    manifest = Manifest.load(plan.directory)
    manifest.check_sizes(plan.directory)
    return manifest


def _holds(state: str, held: Identity, plan: Plan) -> UsageError:
    return UsageError(
        f"{plan.directory} holds {state}{held}, not {identity(plan.bucket, plan.count)}: "
        "choose another --out, or --fresh to write over it"
    )


def _refuse_foreign(directory: Path) -> None:
    names = sorted(path.name for path in directory.iterdir())
    ours = [name for name in names if _OURS.fullmatch(name) or _PARTIAL.fullmatch(name)]
    others = [name for name in names if name not in ours and not name.startswith(".")]
    if others and not ours:
        raise UsageError(
            f"{directory} holds other files ({others[0]}, ...): choose an empty folder with --out"
        )
    manifest = directory / FILE
    if manifest.exists():
        try:
            content = parse_json(read_text(manifest))
        except (Failure, ValueError):
            return  # ours and corrupt, which is said elsewhere, and mended by --fresh
        if not isinstance(content, dict) or content.get("kind") != KIND:
            raise UsageError(
                f"{manifest} is not of a {KIND} of tape-arith: choose an empty folder with --out"
            )


def _remove(directory: Path, *patterns: re.Pattern[str]) -> None:
    # What vouches for other files goes first: a kill in between leaves nothing that lies.
    for path in sorted(directory.iterdir(), key=lambda path: path.suffix != ".json"):
        if any(pattern.fullmatch(path.name) for pattern in patterns):
            path.unlink(missing_ok=True)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the folder's lock. The system drops it with the process, so a kill leaves none."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: then nothing keeps two apart
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
