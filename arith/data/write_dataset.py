"""Write a dataset to a folder, in several processes; a repeated call resumes after a kill.

Each finished shard leaves a small shard-*.json. The manifest is written last and replaces them, so
a folder with a manifest is complete. The end of a shard depends on its number alone and a problem
on its index alone: the bytes are the same for any number of processes.
"""

import fcntl
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.manifest import (
    FILE,
    KIND,
    REMEDY,
    Identity,
    Manifest,
    Shard,
    identity,
    read_identity,
)
from tape_arith.arith.data.npy import write_header
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import (
    Part,
    Positive,
    atomic,
    parse_json,
    read_document,
    read_text,
    sha256,
    write_document,
)

SHARD_SIZE = 1_000_000
"""Problems a shard. It does not change what a dataset holds, only where it is cut."""

_OURS = re.compile(r"(tokens|lengths)-\d{5,}\.npy|shard-\d{5,}\.json|manifest\.json")
_NOTE = re.compile(r"shard-\d{5,}\.json")
_PARTIAL = re.compile(rf"\.({_OURS.pattern})\.[\w-]+\.partial")


Progress = Callable[[int], None]


class PartialIdentity(Identity):
    """What decides every byte of a shard."""

    shard_size: Positive


class ShardNote(Part):
    """shard-*.json, which a finished shard leaves."""

    kind: ClassVar[str] = "dataset shard"
    remedy: ClassVar[str] = REMEDY

    identity: PartialIdentity
    shard: Shard


@dataclass(frozen=True)
class Plan:
    """What is written where, and where it is cut into shards."""

    directory: Path
    bucket: Bucket
    count: int
    shard_size: int

    @property
    def num_shards(self) -> int:
        return -(-self.count // self.shard_size)

    @property
    def identity(self) -> PartialIdentity:
        whole = identity(self.bucket, self.count).model_dump()
        return PartialIdentity(**whole, shard_size=self.shard_size)

    def range(self, number: int) -> tuple[int, int]:
        """The problems of one shard, from and up to."""
        start = number * self.shard_size
        return start, min(start + self.shard_size, self.count)

    def path(self, what: str, number: int) -> Path:
        """tokens-00000.npy, lengths-00000.npy, or shard-00000.json, which says both are whole."""
        return self.directory / f"{what}-{number:05d}.{'json' if what == 'shard' else 'npy'}"


def write_shards(
    plan: Plan, shards: dict[int, Shard], workers: int, progress: Progress | None
) -> tuple[Shard, ...]:
    """Write those that are not yet among `shards`, which are by number; return all, in order.

    `progress` is called with the number of problems on disk so far. Errors: Failure where the disk
    refuses, or a worker dies.
    """
    shards = dict(shards)
    missing = [number for number in range(plan.num_shards) if number not in shards]
    done = sum(shard.count for shard in shards.values())
    if progress and done:
        progress(done)
    for number, shard in _written(plan, missing, min(workers, len(missing))):
        shards[number] = shard
        done += shard.count
        if progress:
            progress(done)
    return tuple(shards[number] for number in range(plan.num_shards))


def _written(plan: Plan, missing: list[int], workers: int) -> Iterator[tuple[int, Shard]]:
    if workers <= 1:
        for number in missing:
            yield number, _write_shard(plan, number)
        return
    # spawn: a fork of a process that holds threads (torch, a progress bar) may hang.
    context = multiprocessing.get_context("spawn")
    with _signals_held_back():  # its first lock starts a process that looks after locks
        executor = ProcessPoolExecutor(workers, context, initializer=_follow_parent)
    try:
        with _signals_held_back():
            futures = {executor.submit(_write_shard, plan, number): number for number in missing}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise Failure(
            f"a worker that wrote to {plan.directory} was killed (out of memory?): "
            "the same command goes on from the shards that are finished"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Have who waits for a signal hear of it at the end of the block: a process whose parent is
    interrupted while it starts would say so with a traceback. What is started in it never hears
    that the terminal is gone: the parent does, and ends it in good order."""
    came: list[int] = []
    here = threading.current_thread() is threading.main_thread()  # the only one that hears any
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if here else ()
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in held}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # which processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _follow_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and die with it, even where it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def die() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=die, daemon=True).start()


def _write_shard(plan: Plan, number: int) -> Shard:
    start, stop = plan.range(number)
    tokens_path, lengths_path = plan.path("tokens", number), plan.path("lengths", number)
    lengths = np.empty(stop - start, dtype=LENGTH_TYPE)

    with atomic(tokens_path) as temporary:
        with open(temporary, "wb") as file:
            # How many tokens there are is known at the end only: the header is written twice.
            write_header(file, np.dtype(np.uint8), 0)
            done = num_tokens = 0
            for piece in plan.bucket.pieces(start, stop):
                file.write(piece.tokens.data)
                num_tokens += len(piece.tokens)
                lengths[done : done + len(piece.lengths)] = piece.lengths
                done += len(piece.lengths)
            file.seek(0)
            write_header(file, np.dtype(np.uint8), num_tokens)
        tokens_sha256 = sha256(temporary)
    with atomic(lengths_path) as temporary:
        with open(temporary, "wb") as file:
            write_header(file, LENGTH_TYPE, len(lengths))
            file.write(lengths.data)
        lengths_sha256 = sha256(temporary)

    shard = Shard(
        tokens=tokens_path.name,
        lengths=lengths_path.name,
        count=stop - start,
        num_tokens=num_tokens,
        tokens_sha256=tokens_sha256,
        lengths_sha256=lengths_sha256,
    )
    note = ShardNote(identity=plan.identity, shard=shard)
    write_document(plan.path("shard", number), note.model_dump(), ShardNote.kind)
    return shard


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
