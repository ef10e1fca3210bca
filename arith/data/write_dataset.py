"""Write problems as a dataset, as text or as Parquet, whole or not at all.

Several threads generate the problems, because numpy releases Python's lock. A problem depends on
its index alone, so the bytes are the same for any number of threads.
"""

import filecmp
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.dataset import FILE, HEADER_BYTES, LENGTHS, TOKENS, Manifest
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import atomic
from tape_arith.arith.lock import NAME as LOCK
from tape_arith.arith.lock import lock_folder
from tape_arith.arith.stopping import Stopped
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, Task
from tape_arith.arith.terminal import bar

PIECE = 100_000
"""Number of problems that a thread generates at a time."""
_OWN_FILE = re.compile(r"(tokens|lengths)(-\d{5,})?\.npy|unfinished\.json")
"""The files of a dataset except its manifest, also of earlier versions."""


ENDINGS = {"tokens": "", "text": ".txt", "parquet": ".parquet"}
"""The formats of problems: "tokens" is a folder that `train` reads, the others are one file."""


def generate_dataset(
    path: Path,
    bucket: Bucket,
    count: int,
    form: str = "tokens",
    *,
    workers: int = 0,
    fresh: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Write problems in one of ENDINGS with a progress bar and `workers` threads (0: all cores).

    Raises Failure if another process is writing the dataset; Stopped, with nothing written, if
    `should_stop` returned True between two pieces.
    """
    # A complete dataset needs no lock, and its folder may be read-only.
    complete = (path / FILE).exists() and not (path / LOCK).exists() and not fresh
    locked = form == "tokens" and not complete
    lock = lock_folder(path, "generate") if locked else nullcontext()
    with lock, bar(f"generate {path.name}", count) as update:

        def progress(done: int) -> None:
            update(done)
            if done < count and should_stop():
                raise Stopped

        write: Callable[..., object] = (
            generate if form == "tokens" else partial(write_problems, form=form)
        )
        write(path, bucket, count, workers=workers, progress=progress, fresh=fresh)


def generate(
    directory: Path,
    bucket: Bucket,
    count: int,
    *,
    workers: int = 0,
    progress: Callable[[int], None] = lambda done: None,
    fresh: bool = False,
) -> Manifest:
    """Write the first `count` problems of `bucket` to `directory`.

    Returns the manifest of the same dataset if the folder holds it; `fresh` removes that first.
    `progress` gets the number of problems written so far. The caller locks the folder.

    Raises UsageError if the folder holds anything else, Failure if it cannot be written.
    """
    _check_count(count)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A manifest.json without data may belong to another program.
        names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
        own = [name for name in names if _OWN_FILE.fullmatch(name)]
        if names and not own:
            raise UsageError(
                f"{directory} holds other files ({names[0]}, ...): choose an empty folder with "
                "--out"
            )
        if (directory / FILE).exists() and not fresh:
            manifest = Manifest.load(directory)
            if not manifest.holds(bucket, count):
                raise UsageError(
                    f"{directory} holds {manifest}, not {bucket.describe(count)}: choose another "
                    "--out, or --fresh to write over it"
                )
            progress(count)
            return manifest
        # The manifest is removed first, so that after a kill no manifest lists a missing file.
        for name in (FILE, *own):
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failure(f"cannot write to the folder {directory}: {reason}") from error
    num_tokens = _write_files(directory, _generated(bucket, count, workers, progress))
    return Manifest.write(directory, bucket, count, num_tokens)


def _check_count(count: int) -> None:
    if count < 1:
        raise UsageError(f"{count} problems are no dataset: give --count 1 or more")


def _generated(
    bucket: Bucket, count: int, workers: int, progress: Callable[[int], None]
) -> Iterator[Problems]:
    """Yield the first `count` problems in pieces from `workers` threads (0: all cores)."""
    if workers < 0:
        raise UsageError(f"{workers} workers cannot write problems: give --workers 1 or more")
    threads = workers or os.cpu_count() or 1
    waiting: deque[tuple[int, Future[Problems]]] = deque()
    executor = ThreadPoolExecutor(threads)
    try:
        for start in range(0, count, PIECE):
            stop = min(start + PIECE, count)
            waiting.append((stop, executor.submit(bucket.problems, start, stop)))
            while len(waiting) > threads or (waiting and stop == count):
                done, piece = waiting.popleft()
                yield piece.result()
                progress(done)
    finally:
        executor.shutdown(cancel_futures=True)


def _write_files(directory: Path, pieces: Iterator[Problems]) -> int:
    """Write the tokens and the lengths of all problems; return the number of tokens."""
    lengths = []
    with atomic(directory / LENGTHS) as lengths_path, atomic(directory / TOKENS) as tokens_path:
        with open(tokens_path, "wb") as file:
            file.seek(HEADER_BYTES)
            for piece in pieces:
                file.write(piece.tokens.data)
                lengths.append(piece.lengths.astype(LENGTH_TYPE))
            num_tokens = file.tell() - HEADER_BYTES
            file.seek(0)
            header = {"descr": "|u1", "fortran_order": False, "shape": (num_tokens,)}
            np.lib.format.write_array_header_1_0(file, header)
            assert file.tell() == HEADER_BYTES
        with open(lengths_path, "wb") as file:  # numpy would add a suffix to a path
            np.save(file, np.concatenate(lengths))
    return num_tokens


def write_problems(
    path: Path,
    bucket: Bucket,
    count: int,
    form: str,
    *,
    workers: int = 0,
    progress: Callable[[int], None] = lambda done: None,
    fresh: bool = False,
) -> Path:
    """Write the first `count` problems of `bucket` to one file, as "text" or "parquet".

    Text has a problem per line, in the task's format and without the end token. Parquet has the
    problem in the column `text`, and a column for each axis of the task, such as `digits_a`. An
    existing `path` is replaced only if it has the same bytes, or with `fresh`.

    Raises UsageError if `path` holds anything else or pyarrow is missing, Failure if it cannot be
    written.
    """
    _check_count(count)
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and {form} is one file: name it with --out")
    write = {"text": _write_text, "parquet": _write_parquet}[form]
    task = load_task(bucket.task)
    with atomic(path) as temporary:
        with open(temporary, "wb") as file:
            write(file, task, _generated(bucket, count, workers, progress))
        if path.exists() and not fresh and not filecmp.cmp(path, temporary, shallow=False):
            raise UsageError(
                f"{path} is damaged or not of {bucket.describe(count)} as {form}: choose "
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
