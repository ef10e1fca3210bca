"""Problems in other people's formats: text and Parquet.

Beside PATH stands PATH.json, with what the file holds and its SHA-256.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, ClassVar

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Identity
from tape_arith.arith.data.write_dataset import check_identity
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


class _ExportNote(Identity):
    """PATH.json: what PATH holds."""

    kind: ClassVar[str] = "exported dataset"
    remedy: ClassVar[str] = "--fresh writes it again"

    format: Text
    bytes: Count
    sha256: Sha256


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
    that holds the same already is left as it is; `fresh` writes over anything.

    Raises UsageError if `path` holds something else or pyarrow is not installed, Failure if the
    disk refuses.
    """
    if count < 1:
        raise UsageError(f"a dataset has at least 1 problem, not {count}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: {form} is written to one file")
    identity, note_path = Identity.of(bucket, count), path.with_name(f"{path.name}.json")
    if path.exists() and not fresh:
        _check_same(path, note_path, identity, form)
        return path

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
        note = _ExportNote(
            **identity.model_dump(),
            format=form,
            bytes=temporary.stat().st_size,
            sha256=sha256(temporary),
        )
        # Before the file: a kill in between leaves a note of nothing, never a file without one.
        write_document(note_path, note.model_dump(), note.kind)
    return path


def _check_same(path: Path, note_path: Path, identity: Identity, form: str) -> None:
    if not note_path.exists():
        raise UsageError(f"{path} is there and not ours: choose another --out, or --fresh")
    note = read_document(note_path, _ExportNote)
    check_identity(path, note, identity)
    if note.format != form:
        raise UsageError(f"{path} is {note.format}, not {form}: choose another --out, or --fresh")
    # The size first: a file that was blown up is not read to its end.
    if path.stat().st_size != note.bytes or sha256(path) != note.sha256:
        raise Failure(f"{path} is not as the hash in {note_path} says: --fresh writes it again")


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
            lines = _lines(piece).decode().splitlines()
            columns = [lines, *piece.operand_lengths.T]
            arrays = [arrow.array(c, t) for c, t in zip(columns, types.values(), strict=True)]
            writer.write_table(arrow.table(arrays, schema=schema))


def _lines(piece: Problems) -> bytes:
    return piece.tokens.tobytes().translate(vocabulary.TO_TEXT)
