"""Atomic writes, bounded reads, and documents: JSON files with a schema, a checksum and a model.

A file is written under a temporary name, synced, then renamed, so it is complete or absent. Input
is not trusted: reading a named pipe must not hang, a huge file must not fill the memory, and
pydantic validates every document. The checksum covers a document's content, not its layout: it
detects a changed digit and ignores new line breaks.
"""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from tape_arith.arith.errors import Corrupt, Failure, UsageError, unknown
from tape_arith.arith.machine import host_id, is_alive

MOST_INTEGER = 2**63 - 1
# A grid of 700 digits and the metrics of 500,000 steps are smaller. Parsing a JSON file takes up to
# 35 times its size in memory, which is 1.2 GB here.
_MOST_BYTES = 32 * 2**20
# The time to parse nested tables grows with the square of their depth.
_MOST_TOML_BYTES = 20_000
SCHEMA = 2
"""The format version that documents and checkpoints of every kind share."""
_MOST_MESSAGE = 1_000

_calls = itertools.count()


# ---- writing -------------------------------------------------------------------------------


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends without an error.

    Removes temporary files of killed writers of `path` first. Raises Failure, naming `path`, if
    writing fails; no partial file remains.
    """
    temporary = temporary_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(path.parent, path.name)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # so that the rename survives a power cut
        finally:
            os.close(descriptor)
    except BaseException as error:
        # Where `path` cannot exist (name too long, parent is a file), neither can `temporary`.
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise Failure(f"cannot write {path}: {error.strerror or error}") from error
        raise


def temporary_beside(path: Path) -> Path:
    """Return a path beside `path`, unique to this call, whose name holds host and process id."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{next(_calls)}.partial")


def remove_stale_temporaries(folder: Path, name: str | None = None) -> None:
    """Remove temporary files in `folder` whose writer on this machine was killed.

    Restricted to temporary files of the file `name` if that is given. Those of other machines
    stay, because this machine cannot tell whether their writer is alive.
    """
    written = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{written}\.{_host()}-(\d+)-\d+\.partial")
    for file in folder.iterdir():
        match = pattern.fullmatch(file.name)
        if match and not is_alive(int(match[1])):
            remove(file)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@cache
def _host() -> str:
    return hashlib.sha256(host_id().encode()).hexdigest()[:8]


def slug(name: str) -> str:
    """Return `name` as one component of a path, valid on every file system."""
    return re.sub(r"[^A-Za-z0-9.+=_-]", "@", name)


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises Failure if writing fails."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, text: str) -> None:
    """Append a line to `path`, whole or not at all. Raises Failure, naming `path`."""
    line = (text + "\n").encode()
    try:
        # A single write in append mode, so that lines of two processes never mix.
        with open(path, "ab", buffering=0) as file:
            written = file.write(line)
            if written < len(line):
                os.truncate(path, os.fstat(file.fileno()).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


# ---- reading -------------------------------------------------------------------------------


@contextmanager
def open_file(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file, or a link to one, for reading.

    Raises Failure, naming the file, also if reading fails inside the block.
    """
    try:
        # A plain open() of a named pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Failure(f"cannot read {path}: it is not a file")
        with open(descriptor, "rb") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise Failure(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error


def read_text(path: Path, limit: int = _MOST_BYTES) -> str:
    """Read a file of at most `limit` bytes as UTF-8.

    Raises Failure, naming the file; Corrupt if it is not UTF-8.
    """
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Failure(f"{path} is larger than the {limit:,} bytes that are read of such a file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"{path} is corrupt: not UTF-8 ({error})") from error


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in pieces. Raises Failure if it cannot be read."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its content.

    Raises Failure, naming the file, if it cannot be read; ValueError if it is not TOML.
    """
    text = read_text(path, _MOST_TOML_BYTES)
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError if it is invalid, nested too deep, or has NaN or Infinity."""
    return from_json(text, allow_inf_nan=False)


# ---- documents -----------------------------------------------------------------------------


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not hold control characters")
    return text


Text = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_printable)]
Count = Annotated[int, Field(ge=0, le=MOST_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MOST_INTEGER)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Strict:
    """Base of frozen dataclasses that are read from documents; unknown fields are refused."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


class Part(BaseModel):
    """Base of pydantic models of a document or of a part of one."""

    model_config = _STRICT


class _Document(Protocol):
    """A model of a whole file."""

    kind: ClassVar[str]
    remedy: ClassVar[str]
    """Advice for a corrupt file; `{path}` and `{folder}` are filled in."""


_Model = TypeVar("_Model")
_DocumentModel = TypeVar("_DocumentModel", bound=_Document)


class InvalidValue(UsageError):
    """A value that the model of its document does not allow."""


def with_checksum(content: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return `content` with its schema number, its kind and its checksum."""
    # The checksum is of what is read back: JSON makes lists of tuples and text of numeric keys.
    document = json.loads(json.dumps({"schema": SCHEMA, "kind": kind, **content}, allow_nan=False))
    return {**document, "checksum": checksum(document)}


def checksum(content: Mapping[str, Any]) -> str:
    """Return 16 hex digits of the SHA-256 of a document, which has no checksum yet."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_schema(path: Path, schema: object) -> None:
    """Raise Failure if this version does not read files of `schema`."""
    if type(schema) is not int or schema != SCHEMA:
        raise Failure(
            f"{path} has schema {str(schema)[:20]} and this version reads {SCHEMA}: use the "
            "version of tape-arith that wrote it"
        )


def write_document(path: Path, content: Mapping[str, Any], kind: str) -> None:
    """Write a document, whole or not at all. Raises Failure if writing fails."""
    write_text(path, json.dumps(with_checksum(content, kind), indent=1) + "\n")


def read_content(path: Path, kind: str) -> dict[str, Any]:
    """Return the content of a document without schema, kind and checksum.

    Raises Failure, naming the file, if it is of another kind or version; Corrupt if it is damaged.
    """
    try:
        content = parse_json(read_text(path))
    except ValueError as error:
        raise Corrupt(f"{path} is corrupt: not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("kind") != kind:
        raise Failure(f"{path} is not a {kind} of tape-arith")
    stored = content.pop("checksum", None)
    check_schema(path, content.get("schema"))
    if stored != checksum(content):
        raise Corrupt(f"{path} is corrupt: its checksum does not match its content")
    return {key: value for key, value in content.items() if key not in ("schema", "kind")}


def read_document(path: Path, model: type[_DocumentModel]) -> _DocumentModel:
    """Read a document. Raises as `read_content`, and Corrupt if `model` refuses the content."""
    remedy = model.remedy.format(path=path, folder=path.parent)
    try:
        return validated(read_content(path, model.kind), model)
    except InvalidValue as error:
        raise Corrupt(f"{path} is corrupt: {error}; {remedy}") from None
    except Corrupt as error:
        raise Corrupt(f"{error}; {remedy}") from error


def validated(content: object, model: type[_Model], strict: bool | None = None) -> _Model:
    """Convert JSON values to a `model`. Raises InvalidValue, whose text is one plain sentence.

    With `strict=False`, text may stand for a number, as on the command line.
    """
    # The values go through JSON, because strict validation of Python objects refuses a list for a
    # tuple and a dict for a dataclass. TOML dates become text, which only text fields accept.
    try:
        text = json.dumps(content, default=str)
        result: _Model = _adapter(model).validate_json(text, strict=strict)  # type: ignore[arg-type]
    except RecursionError:
        raise InvalidValue("nested too deep") from None
    except ValidationError as error:
        raise InvalidValue(_sentence(error, model)[:_MOST_MESSAGE]) from None
    return result


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _sentence(error: ValidationError, model: type[Any]) -> str:
    """Say in one sentence which field is wrong, what it must be and what it is."""
    errors = error.errors(include_url=False)
    # A misspelt field makes two errors, unknown and missing: the unknown field tells more.
    first = next((one for one in errors if one["type"] in _UNKNOWN), errors[0])
    kind, name, message = first["type"], ".".join(map(str, first["loc"])), first["msg"]
    if kind in _UNKNOWN and len(first["loc"]) == 1:
        if is_dataclass(model):
            return str(unknown("key", name, [field.name for field in fields(model)]))
        known = model.model_fields.items()
        return str(unknown("key", name, [field.alias or key for key, field in known]))
    if kind == "value_error" and not message.startswith("Value error, must"):
        return message.removeprefix("Value error, ")
    message = re.sub(r"^\w+ should", "must", message)
    for words, plain_words in _PLAIN_WORDS.items():
        message = message.replace(words, plain_words)
    if kind != "missing" and isinstance(first["input"], str | int | float | None):
        message += f", not {first['input']!r:.40}"
    return f"{name[:80]!r} {message}"


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_PLAIN_WORDS = {
    "Value error, ": "",
    "Field required": "is missing",
    "Extra inputs are not permitted": "is unknown",
    "Unexpected keyword argument": "is unknown",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    ", unable to parse string as an integer": "",
    ", unable to parse string as a number": "",
    " after validation": "",
}
"""Replacements for pydantic's words in a sentence that begins with the name of a field."""
