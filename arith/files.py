"""Files that are whole or not there: written beside their place, synced, then renamed."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from arith.errors import Failure


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary neighbour of `path`; when the block ends well it takes `path`'s place.

    Errors: Failure, naming `path`, where the disk refuses; nothing half-written stays behind.
    """
    # The process id keeps two writers apart, and lets a kill leave a name that is never read.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        # Where `path` cannot be (its parent is a file, its name too long), nor can this.
        with suppress(OSError):
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object) -> None:
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """The JSON object in `path`, whose "kind" must be `kind` and whose "schema" must be 1."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # JSON or UTF-8; nested too deep
        raise Failure(f"{path} is corrupt: not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("kind") != kind:
        raise Failure(f"{path} is not a {kind} of tape-arith")
    if content.get("schema") != 1:
        raise Failure(f"{path} has schema {content.get('schema')!r}; this version reads schema 1")
    return content


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in pieces. Errors: Failure where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
