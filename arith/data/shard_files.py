"""The files of a dataset's shards, written side by side in several processes.

Where a shard ends depends on nothing but its number, and a problem on nothing but its index: the
bytes are the same for any number of processes.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.manifest import REMEDY, Identity, Shard, identity
from tape_arith.arith.data.npy import write_header
from tape_arith.arith.documents import Part, Positive, write_document
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import atomic, sha256

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
