"""What every JSON document that we write says of itself: its kind, its schema and a checksum.

A document is a file, or a line of a .jsonl file. The checksum is over what it says, not over how
it is laid out: one changed digit is found, new line breaks are not minded. It keeps out accidents,
not somebody who writes a document on purpose.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from arith.checking import Wrong
from arith.errors import Corrupt, Failure
from arith.reading import parse_json, read_text

NEWEST = {
    "dataset": 2,
    "dataset shard": 2,
    "exported dataset": 2,
    "exported run": 2,
    "run": 2,
    "environment": 2,
    "timings": 2,
    "metrics": 2,
    "grid": 2,
    "job": 2,
    "end": 2,
    "bench": 2,
    "checkpoint": 2,
}
"""Every kind of file with the schema that is written; a checkpoint's is in its header. All of
schema 1 are read too: they had no checksum, and lines of theirs no kind."""
WITH_CHECKSUM = 2
"""The first schema with one."""


class Damaged(Wrong):
    """A document that is not what was written."""


def sealed(content: dict[str, Any], kind: str, key: str = "kind") -> dict[str, Any]:
    """`content` as a document of `kind`, which it says under `key`."""
    marks = {"schema": NEWEST[kind], key: kind}
    # As a reader gets it: a tuple becomes a list, a number as a key becomes text.
    told = json.loads(json.dumps({**marks, **content, **marks}, allow_nan=False))
    return {**told, "checksum": checksum(told)}


def unsealed(content: Any, kind: str, key: str = "kind") -> dict[str, Any]:
    """What a document of `kind` says, without its checksum.

    Errors: Wrong where it is of another kind, of a schema that is not read here, or damaged: the
    end of a sentence that begins with the name of the file.
    """
    if not isinstance(content, dict) or content.get(key) != kind:
        raise Wrong(f"is not a {kind} of tape-arith")
    if readable(content.get("schema"), kind) < WITH_CHECKSUM and "checksum" not in content:
        return content
    told = {name: value for name, value in content.items() if name != "checksum"}
    if content.get("checksum") != checksum(told):
        raise Damaged("is corrupt: it is not what its checksum says")
    return told


def readable(schema: object, kind: str) -> int:
    """The schema of a file of `kind`, which this version must be able to read. Errors: Wrong."""
    newest = NEWEST[kind]
    if type(schema) is not int or not 1 <= schema <= newest:
        known = "schema 1" if newest == 1 else f"schemas 1 to {newest}"
        raise Wrong(f"has schema {repr(schema)[:40]}; this version reads {known}")
    return schema


def checksum(content: dict[str, Any]) -> str:
    """16 hexadecimal digits over what a document says. Errors: Wrong where it is too deep."""
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    except RecursionError:  # what could just be read may be too deep to write
        raise Damaged("is corrupt: nested too deep") from None
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """The document of `kind` in the file at `path`. Errors: Failure, naming it; Corrupt where it is
    damaged."""
    try:
        content = parse_json(read_text(path))
    except ValueError as error:
        raise Corrupt(f"{path} is corrupt: not JSON ({error})") from error
    try:
        return unsealed(content, kind)
    except Damaged as error:
        raise Corrupt(f"{path} {error}") from error
    except Wrong as error:
        raise Failure(f"{path} {error}") from error
