"""Files that are read: regular ones of a bounded size, and JSON that means one thing only.

What a person sends us is believed in nothing: a named pipe in a file's place must not hang, a huge
file must not fill the memory, a key that stands twice must not say two things.
"""

import hashlib
import json
import os
import stat
import tomllib
from io import BufferedReader
from pathlib import Path
from typing import Any

from arith.errors import Corrupt, Failure

MOST_BYTES = 32 * 2**20
"""Of a file that is read whole. As JSON it takes up to 35 times as much memory: 1.2 GB. A grid to
700 digits is smaller, and so are the metrics of 500,000 steps."""
MOST_TOML_BYTES = 20_000
"""A person writes them. Nested tables cost a time that grows with the square of their depth."""
MOST_INTEGER = 2**63 - 1


def opened(path: Path) -> BufferedReader:
    """A regular file, or what links to one, for reading. Errors: Failure, naming it."""
    try:
        # A named pipe that nobody writes would wait for ever in a plain open().
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise Failure(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Failure(f"cannot read {path}: it is not a file")
    return open(descriptor, "rb")


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """All of a file of at most `most` bytes. Errors: Failure, naming it."""
    with opened(path) as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > most:
        raise Failure(f"{path} is larger than the {most:,} bytes that are read of such a file")
    return content


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The same as UTF-8. Errors: Failure, naming it; Corrupt where it is not UTF-8."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"{path} is corrupt: not UTF-8 ({error})") from error


def parse_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file, and what it says. Errors: Failure, naming it, where it cannot be
    read; ValueError where it is not TOML."""
    text = read_text(path, MOST_TOML_BYTES)
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_json(text: str) -> Any:
    """What JSON says. Errors: ValueError where it is none, nested too deep, names a key twice, or
    holds a number that is not finite or past 64 bits."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in pieces. Errors: Failure where it cannot be read."""
    with opened(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror or error}") from error


def _integer(text: str) -> int:
    # Longer than 64 bits in any case, and quadratic to read.
    value = int(text) if len(text) <= 20 else MOST_INTEGER + 1
    if abs(value) > MOST_INTEGER:
        raise ValueError(f"the number {text[:24]} is past 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:24]} is past every float")
    return value


def _constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:40]!r} stands twice")
    return content


_DECODER = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_number,
    parse_constant=_constant,
    object_pairs_hook=_object,
)
