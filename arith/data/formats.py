"""Problems in other people's formats: text and Parquet."""

import filecmp
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Identity
from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import atomic
from tape_arith.arith.tasks import vocabulary
from tape_arith.arith.tasks.task import Problems


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

    Text has a problem a line, "a+b=c", digits least significant first, without the end token. The
    columns of Parquet are text, first_length and second_length (digits of the operands). A `path`
    that exists is replaced if it has the same bytes, or with `fresh`.

    Raises UsageError if `path` holds something else or pyarrow is not installed, Failure if the
    disk refuses.
    """
    if count < 1:
        raise UsageError(f"a dataset has at least 1 problem, not {count}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: {form} is written to one file")

    def pieces() -> Iterator[Problems]:
        done = 0
        for piece in bucket.pieces(0, count):
            yield piece
            done += len(piece.lengths)
            progress(done)

    write = {"text": _write_text, "parquet": _write_parquet}[form]
    with atomic(path) as temporary:
        with open(temporary, "wb") as file:
            write(file, pieces())
        if path.exists() and not fresh and not filecmp.cmp(path, temporary, shallow=False):
            raise UsageError(
                f"{path} is damaged or not of {Identity.of(bucket, count)} as {form}: choose "
                "another --out, or --fresh to write over it"
            )
    return path


def _write_text(file: BinaryIO, pieces: Iterator[Problems]) -> None:
    for piece in pieces:
        file.write(_lines(piece))


def _write_parquet(file: BinaryIO, pieces: Iterator[Problems]) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError("parquet needs pyarrow: pip install 'tape-arith[data]'") from error
    types = {"text": arrow.string(), "first_length": arrow.int16(), "second_length": arrow.int16()}
    schema = arrow.schema(list(types.items()))
    with parquet.ParquetWriter(file, schema) as writer:
        for piece in pieces:
            columns = [_lines(piece).decode().splitlines(), *piece.operand_lengths.T]
            arrays = [arrow.array(c, t) for c, t in zip(columns, types.values(), strict=True)]
            writer.write_table(arrow.table(arrays, schema=schema))


def _lines(piece: Problems) -> bytes:
    return piece.tokens.tobytes().translate(vocabulary.TO_TEXT)
