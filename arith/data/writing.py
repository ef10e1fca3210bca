"""Writing a dataset: shards side by side in several processes, resumed after a kill.

Where a shard ends depends on nothing but its number, and a problem on nothing but its index: the
bytes are the same for any number of processes. A finished shard leaves a small shard-*.json; the
manifest comes last and takes their place, so a folder with a manifest is whole.
"""

import fcntl
import io
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arith.data.bucket import LENGTH_TYPE, Bucket
from arith.data.manifest import FILE, KIND, Manifest, Shard, again, described, identity, read
from arith.errors import Failure, UsageError
from arith.files import atomic, read_json, sha256, write_json
from arith.reading import parse_json, read_text

SHARD_SIZE = 1_000_000
"""Problems a shard. It does not change what a dataset holds, only where it is cut."""
HEADER_BYTES = 128
"""What numpy writes before the data of a one-dimensional array, whatever its length."""

_SHARD_KIND = "dataset shard"
_OURS = re.compile(r"(tokens|lengths)-\d{5,}\.npy|shard-\d{5,}\.json|manifest\.json")
_NOTE = re.compile(r"shard-\d{5,}\.json")
_PARTIAL = re.compile(rf"\.({_OURS.pattern})\.[\w-]+\.partial")

Progress = Callable[[int], None]


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
    plan = _Plan(Path(directory), bucket, count, shard_size)
    try:
        plan.directory.mkdir(parents=True, exist_ok=True)
        with _alone(plan.directory):
            return _generate(plan, workers, progress, fresh)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(f"cannot write to the folder {directory}: {reason}") from error


def _generate(plan: "_Plan", workers: int, progress: Progress | None, fresh: bool) -> Manifest:
    _refuse_foreign(plan.directory)
    if fresh:
        _remove(plan.directory, _OURS)
    finished = _finished(plan)
    if finished is None:
        _remove(plan.directory, _PARTIAL)
        finished = Manifest(plan.bucket, plan.count, _write_shards(plan, workers, progress))
        finished.save(plan.directory)
    elif progress:
        progress(plan.count)
    # Also where a kill came between the manifest and this.
    _remove(plan.directory, _PARTIAL, _NOTE)
    return finished


@dataclass(frozen=True)
class _Plan:
    directory: Path
    bucket: Bucket
    count: int
    shard_size: int

    @property
    def num_shards(self) -> int:
        return -(-self.count // self.shard_size)

    @property
    def identity(self) -> dict[str, str | int]:
        return {**identity(self.bucket, self.count), "shard_size": self.shard_size}

    def range(self, number: int) -> tuple[int, int]:
        """The problems of one shard, from and up to."""
        start = number * self.shard_size
        return start, min(start + self.shard_size, self.count)

    def path(self, what: str, number: int) -> Path:
        """tokens-00000.npy, lengths-00000.npy, or shard-00000.json, which says both are whole."""
        return self.directory / f"{what}-{number:05d}.{'json' if what == 'shard' else 'npy'}"


def _write_shards(plan: _Plan, workers: int, progress: Progress | None) -> tuple[Shard, ...]:
    shards = _noted(plan)
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


def _written(plan: _Plan, missing: list[int], workers: int) -> Iterator[tuple[int, Shard]]:
    if workers <= 1:
        for number in missing:
            yield number, _write_shard(plan, number)
        return
    # spawn: a fork of a process that holds threads (torch, a progress bar) may hang.
    executor = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_follow_parent
    )
    try:
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


def _follow_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and die with it, even where it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def die() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=die, daemon=True).start()


def _write_shard(plan: _Plan, number: int) -> Shard:
    start, stop = plan.range(number)
    tokens_path, lengths_path = plan.path("tokens", number), plan.path("lengths", number)
    lengths = np.empty(stop - start, dtype=LENGTH_TYPE)

    with atomic(tokens_path) as temporary:
        with open(temporary, "wb") as file:
            # How many tokens there are is known at the end only: the header is written twice.
            _write_header(file, np.dtype(np.uint8), 0)
            done = num_tokens = 0
            for piece in plan.bucket.pieces(start, stop):
                file.write(piece.tokens.data)
                num_tokens += len(piece.tokens)
                lengths[done : done + len(piece.lengths)] = piece.lengths
                done += len(piece.lengths)
            file.seek(0)
            _write_header(file, np.dtype(np.uint8), num_tokens)
        tokens_sha256 = sha256(temporary)
    with atomic(lengths_path) as temporary:
        with open(temporary, "wb") as file:
            _write_header(file, LENGTH_TYPE, len(lengths))
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
    note = {"schema": 1, "kind": _SHARD_KIND, "identity": plan.identity, "shard": asdict(shard)}
    write_json(plan.path("shard", number), note)
    return shard


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """What stands in a .npy file before `count` numbers."""
    file = io.BytesIO()
    _write_header(file, dtype, count)
    return file.getvalue()


def _write_header(file: BinaryIO, dtype: np.dtype[Any], count: int) -> None:
    header = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)
    assert file.tell() == HEADER_BYTES


def _noted(plan: _Plan) -> dict[int, Shard]:
    """The shards that an earlier call finished and whose files are still what it wrote."""
    shards = {}
    for path in sorted(plan.directory.glob("shard-*.json")):
        if not _NOTE.fullmatch(path.name):  # somebody's copy
            continue
        try:
            note = read_json(path, _SHARD_KIND)
        except Failure as error:
            raise Failure(f"{error}; {again(plan.directory)}") from error
        held = note.get("identity")
        if held != plan.identity:
            raise _holds(plan.directory, "an unfinished dataset of ", held, plan)
        shard = Shard.of(note.get("shard"), path)
        # Hashing costs far less than writing it again.
        if _is(plan.directory / shard.tokens, shard.tokens_sha256) and _is(
            plan.directory / shard.lengths, shard.lengths_sha256
        ):
            shards[int(path.stem.removeprefix("shard-"))] = shard
    return shards


def _is(path: Path, expected: str) -> bool:
    return path.exists() and sha256(path) == expected


def _finished(plan: _Plan) -> Manifest | None:
    path = plan.directory / FILE
    if not path.exists():
        return None
    content = read(plan.directory)
    asked = identity(plan.bucket, plan.count)
    if {name: content.get(name) for name in asked} != asked:
        raise _holds(plan.directory, "", content, plan)
    manifest = Manifest.load(plan.directory)
    check_sizes(plan.directory, manifest)
    return manifest


def check_sizes(directory: Path, manifest: Manifest) -> None:
    """Errors: Failure naming the first file that is missing or has not the size it should have."""
    for shard in manifest.shards:
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


def _holds(directory: Path, what: str, held: object, plan: _Plan) -> UsageError:
    found = described(held) if isinstance(held, dict) else "something unknown"
    asked = described(identity(plan.bucket, plan.count))
    return UsageError(
        f"{directory} holds {what}{found}, not {asked}: "
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
