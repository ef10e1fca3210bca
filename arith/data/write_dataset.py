"""Write problems as text, as Parquet, or as a dataset, which a repeated call resumes after a kill.

unfinished.json lists the finished shards; the manifest is written last and replaces it. The end of
a shard depends on its number alone, and a problem on its index alone: the bytes are the same for
any number of workers. Workers are threads, because numpy and hashlib release Python's lock.
"""

import filecmp
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.dataset import FILE, HEADER_BYTES, REMEDY, Identity, Manifest, Shard
from tape_arith.arith.documents import read_document, write_document
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import atomic, remove_stale_temporaries, sha256
from tape_arith.arith.lock import NAME as LOCK
from tape_arith.arith.lock import lock_folder
from tape_arith.arith.stopping import Stopped
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, Task
from tape_arith.arith.terminal import bar

SHARD_SIZE = 1_000_000
"""Problems per shard. It does not change what a dataset holds, only where it is cut."""

UNFINISHED = "unfinished.json"
_OWN_FILE = re.compile(r"(tokens|lengths)-\d{5,}\.npy|unfinished\.json")


class Unfinished(Identity):
    """unfinished.json of a dataset that is being written: its shards so far, in order."""

    kind: ClassVar[str] = "unfinished dataset"
    remedy: ClassVar[str] = REMEDY

    shards: tuple[Shard, ...]


def generate_dataset(
    folder: Path,
    bucket: Bucket,
    count: int,
    *,
    workers: int = 0,
    fresh: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """Write a dataset with a progress bar and `workers` threads (0: all cores).

    Returns the seconds it took. Raises Busy if another process is writing the dataset, Stopped if
    `should_stop` returned True between two shards; the next call continues.
    """
    began = time.perf_counter()
    threads = workers or os.cpu_count() or 1
    # A complete dataset needs no lock, and its folder may be read-only.
    complete = (folder / FILE).exists() and not (folder / LOCK).exists() and not fresh
    lock = nullcontext() if complete else lock_folder(folder, "generate")
    with lock, bar(f"generate {folder.name}", count) as update:

        def progress(done: int) -> None:
            update(done)
            if done < count and should_stop():
                raise Stopped

        generate(folder, bucket, count, workers=threads, progress=progress, fresh=fresh)
    return time.perf_counter() - began


def generate(
    directory: Path,
    bucket: Bucket,
    count: int,
    *,
    workers: int = 1,
    progress: Callable[[int], None] = lambda done: None,
    fresh: bool = False,
    shard_size: int = SHARD_SIZE,
) -> Manifest:
    """Write the first `count` problems of `bucket` to `directory`; resume after a kill.

    If the folder already holds the same dataset, complete, it is left unchanged and its manifest
    returned; `fresh` removes it first. `progress` is called with the number of problems on disk so
    far. The caller keeps other writers away.

    Raises UsageError if the folder holds anything else, Failure if it cannot be written.
    """
    _check_count(count)
    if workers < 1:
        raise UsageError(f"{workers} workers cannot write a dataset: give --workers 1 or more")
    identity = Identity.of(bucket, count)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A manifest.json without shards may be another program's.
        names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
        own = [name for name in names if _OWN_FILE.fullmatch(name)]
        if names and not own:
            raise UsageError(
                f"{directory} holds other files ({names[0]}, ...): choose an empty folder with "
                "--out"
            )
        if fresh:
            # The documents are removed first: after a kill in between, none lists a missing file.
            for name in (FILE, UNFINISHED, *own):
                (directory / name).unlink(missing_ok=True)
        if (directory / FILE).exists():
            manifest = Manifest.load(directory)
            _check_identity(directory, manifest, identity, "")
            progress(count)
        else:
            shards = _write_shards(directory, identity, shard_size, workers, progress)
            manifest = Manifest.write(directory, identity, shards)
        (directory / UNFINISHED).unlink(missing_ok=True)
        remove_stale_temporaries(directory)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(f"cannot write to the folder {directory}: {reason}") from error
    return manifest


def _check_count(count: int) -> None:
    if count < 1:
        raise UsageError(f"{count} problems are no dataset: give --count 1 or more")


def _check_identity(directory: Path, document: Identity, identity: Identity, state: str) -> None:
    if document.identity != identity:
        raise UsageError(
            f"{directory} holds {state}{document.identity}, not {identity}: choose another --out, "
            "or --fresh to write over it"
        )


def _write_shards(
    directory: Path,
    identity: Identity,
    shard_size: int,
    workers: int,
    progress: Callable[[int], None],
) -> tuple[Shard, ...]:
    """Write the shards that an earlier call did not finish; return all shards."""
    path = directory / UNFINISHED
    earlier: tuple[Shard, ...] = ()
    if path.exists():
        document = read_document(path, Unfinished)
        _check_identity(directory, document, identity, "an unfinished dataset of ")
        earlier = document.shards

    def finish(number: int) -> Shard:
        start = number * shard_size
        stop = min(start + shard_size, identity.count)
        for shard in earlier[number : number + 1]:
            # Hashing a shard takes far less time than writing it again.
            files = shard.files(directory)
            intact = all(file.exists() and sha256(file) == digest for file, _, digest in files)
            first = sum(before.count for before in earlier[:number])
            if intact and (first, shard.count) == (start, stop - start):
                return shard
        return _write_shard(directory, identity, number, start, stop)

    shards: list[Shard] = []
    executor = ThreadPoolExecutor(workers)
    try:
        for shard in executor.map(finish, range(-(-identity.count // shard_size))):
            shards.append(shard)
            # Those of an earlier call that are still to be looked at stay listed.
            listed = (*shards, *earlier[len(shards) :])
            document = Unfinished(**identity.model_dump(), shards=listed)
            write_document(path, document.content(), Unfinished.kind)
            progress(sum(shard.count for shard in shards))
    finally:
        executor.shutdown(cancel_futures=True)
    return tuple(shards)


def _write_shard(directory: Path, identity: Identity, number: int, start: int, stop: int) -> Shard:
    tokens_path, lengths_path = (
        directory / f"{name}-{number:05d}.npy" for name in ("tokens", "lengths")
    )
    lengths = []
    with atomic(tokens_path) as temporary:
        with open(temporary, "wb") as file:
            file.seek(HEADER_BYTES)
            for piece in identity.bucket.pieces(start, stop):
                file.write(piece.tokens.data)
                lengths.append(piece.lengths.astype(LENGTH_TYPE))
            num_tokens = file.tell() - HEADER_BYTES
            file.seek(0)
            header = {"descr": "|u1", "fortran_order": False, "shape": (num_tokens,)}
            np.lib.format.write_array_header_1_0(file, header)
            assert file.tell() == HEADER_BYTES
        tokens_sha256 = sha256(temporary)
    with atomic(lengths_path) as temporary:
        with open(temporary, "wb") as file:  # numpy would add a suffix to a path
            np.save(file, np.concatenate(lengths))
        lengths_sha256 = sha256(temporary)
    return Shard(
        tokens=tokens_path.name,
        lengths=lengths_path.name,
        count=stop - start,
        num_tokens=num_tokens,
        tokens_sha256=tokens_sha256,
        lengths_sha256=lengths_sha256,
    )


# ---- text and Parquet ----------------------------------------------------------------------


def write_problems(
    path: Path,
    bucket: Bucket,
    count: int,
    form: str,
    *,
    progress: Callable[[int], None] = lambda done: None,
    fresh: bool = False,
) -> Path:
    """Write the first `count` problems of `bucket` to one file, as "text" or "parquet".

    Text has one problem per line, in the format of the task and without the end token. Parquet has
    it in the column `text`, beside a column for each axis of the task, as `digits_a`. An existing
    `path` is replaced only if it has the same bytes, or with `fresh`.

    Raises UsageError if `path` holds something else or pyarrow is not installed, Failure if it
    cannot be written.
    """
    _check_count(count)
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and {form} is one file: name it with --out")

    def pieces() -> Iterator[Problems]:
        done = 0
        for piece in bucket.pieces(0, count):
            yield piece
            done += len(piece.lengths)
            progress(done)

    write = {"text": _write_text, "parquet": _write_parquet}[form]
    task = load_task(bucket.task)
    with atomic(path) as temporary:
        with open(temporary, "wb") as file:
            write(file, task, pieces())
        if path.exists() and not fresh and not filecmp.cmp(path, temporary, shallow=False):
            raise UsageError(
                f"{path} is damaged or not of {Identity.of(bucket, count)} as {form}: choose "
                "another --out, or --fresh to write over it"
            )
    return path


def _write_text(file: BinaryIO, task: Task[Any], pieces: Iterator[Problems]) -> None:
    for piece in pieces:
        file.write(task.vocabulary.lines(piece.tokens).encode())


def _write_parquet(file: BinaryIO, task: Task[Any], pieces: Iterator[Problems]) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError("parquet needs pyarrow: pip install 'tape-arith[data]'") from error
    types = {"text": arrow.string(), **{axis.column: arrow.int16() for axis in task.axes}}
    schema = arrow.schema(list(types.items()))
    with parquet.ParquetWriter(file, schema) as writer:
        for piece in pieces:
            lines = task.vocabulary.lines(piece.tokens).split("\n")[:-1]
            columns = [lines, *piece.axis_lengths.T]
            arrays = [arrow.array(c, t) for c, t in zip(columns, types.values(), strict=True)]
            writer.write_table(arrow.table(arrays, schema=schema))
