"""Problems in other people's formats: text and Parquet.

Beside PATH stands PATH.json, with what the file holds and its SHA-256.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.manifest import Identity, identity
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import (
    Count,
    Sha256,
    Text,
    atomic,
    read_document,
    sha256,
    write_document,
)
from tape_arith.arith.tasks import vocabulary
from tape_arith.arith.tasks.task import Problems

Progress = Callable[[int], None]


class _ExportNote(Identity):
    """PATH.json: what PATH holds."""

    kind: ClassVar[str] = "exported dataset"
    remedy: ClassVar[str] = "--fresh writes it again"

    format: Text
    bytes: Count
    sha256: Sha256


def write_text(
    path: Path,
    bucket: Bucket,
    count: int,
    *,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Path:
    """Write the first `count` problems of `bucket` to `path`, one `a+b=c` a line.

    Digits stand least significant first; the end token is not written. A `path` that holds the same
    already is left as it is; `fresh` writes over anything. `progress` gets the number of problems
    written so far. Errors: UsageError where `path` holds something else; Failure from the disk.
    """
    if _is_there(path, bucket, count, "text", fresh):
        return path
    with atomic(path) as temporary:
        with open(temporary, "wb") as file:
            done = 0
            for piece in bucket.pieces(0, count):
                file.write(_lines(piece))
                done += len(piece.lengths)
                if progress:
                    progress(done)
        _note(path, bucket, count, "text", temporary)
    return path


def write_parquet(
    path: Path,
    bucket: Bucket,
    count: int,
    *,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Path:
    """As `write_text`, as a Parquet file that Hugging Face's `datasets` reads.

    Columns: text ("a+b=c"), first_length and second_length (digits of the operands). Errors: also
    UsageError where pyarrow is not installed.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError("parquet needs pyarrow: pip install 'tape-arith[data]'") from error
    if _is_there(path, bucket, count, "parquet", fresh):
        return path
    schema = arrow.schema(
        [
            ("text", arrow.string()),
            ("first_length", arrow.int16()),
            ("second_length", arrow.int16()),
        ]
    )
    with atomic(path) as temporary:
        with parquet.ParquetWriter(temporary, schema) as writer:
            done = 0
            for piece in bucket.pieces(0, count):
                writer.write_table(arrow.table(_columns(arrow, piece), schema=schema))
                done += len(piece.lengths)
                if progress:
                    progress(done)
        _note(path, bucket, count, "parquet", temporary)
    return path


def _lines(piece: Problems) -> bytes:
    return piece.tokens.tobytes().translate(vocabulary.TO_TEXT)


def _columns(arrow: Any, piece: Problems) -> list[Any]:
    # The lines without their ends are what Arrow keeps of strings: one buffer, and where each ends.
    characters = _lines(piece).replace(b"\n", b"")
    ends = np.concatenate([[0], np.cumsum(piece.lengths - 1)]).astype(np.int32)
    text = arrow.StringArray.from_buffers(
        len(piece.lengths), arrow.py_buffer(ends), arrow.py_buffer(characters)
    )
    lengths = piece.operand_lengths.astype(np.int16)
    return [text, arrow.array(lengths[:, 0]), arrow.array(lengths[:, 1])]


def _is_there(path: Path, bucket: Bucket, count: int, form: str, fresh: bool) -> bool:
    if count < 1:
        raise UsageError(f"a dataset has at least 1 problem, not {count}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: {form} is written to one file")
    if fresh or not path.exists():
        return False
    beside = _beside(path)
    if not beside.exists():
        raise UsageError(f"{path} is there and not ours: choose another --out, or --fresh")
    note = read_document(beside, _ExportNote)
    held = Identity(**note.model_dump(include=set(Identity.model_fields)))
    if (held, note.format) != (identity(bucket, count), form):
        raise UsageError(
            f"{path} holds {held} as {note.format}: "
            "choose another --out, or --fresh to write over it"
        )
    # The size first: a file that was blown up is not read to its end.
    if path.stat().st_size != note.bytes or sha256(path) != note.sha256:
        raise Failure(f"{path} is not as the hash in {beside} says: --fresh writes it again")
    return True


def _note(path: Path, bucket: Bucket, count: int, form: str, temporary: Path) -> None:
    """Of what is in `temporary`, before it is at `path`: a kill in between leaves a note of
    nothing, which the next call replaces, never a file that nobody knows."""
    size, digest = temporary.stat().st_size, sha256(temporary)
    content = {"format": form, "bytes": size, "sha256": digest}
    content = identity(bucket, count).model_dump() | content
    write_document(_beside(path), content, _ExportNote.kind)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
