"""Read and write documents: JSON files with a schema and a checksum, validated by pydantic models.

The checksum covers a document's content, not its layout: it detects a changed digit and ignores new
line breaks.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tape_arith.arith.errors import Corrupt, Failure, UsageError, unknown
from tape_arith.arith.files import parse_json, read_text, write_text

MOST_INTEGER = 2**63 - 1
SCHEMA = 2
"""The format version of all documents and checkpoints."""


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
    """Base of frozen dataclasses in documents; unknown fields are errors."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


class Part(BaseModel):
    """Base of pydantic models of documents and their parts."""

    model_config = _STRICT


class _Document(Protocol):
    """A model of a whole file."""

    kind: ClassVar[str]
    remedy: ClassVar[str]
    """Advice for a corrupt file, with placeholders `{path}` and `{folder}`."""


_Model = TypeVar("_Model")
_DocumentModel = TypeVar("_DocumentModel", bound=_Document)


class InvalidValue(UsageError):
    """A value that a document's model does not allow."""


def with_checksum(content: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return `content` with its schema number, kind and checksum."""
    # Hash the content as read back: JSON turns tuples into lists and numeric keys into text.
    document = json.loads(json.dumps({"schema": SCHEMA, "kind": kind, **content}, allow_nan=False))
    return {**document, "checksum": checksum(document)}


def checksum(content: Mapping[str, Any]) -> str:
    """Return 16 hex digits of the SHA-256 of a document without its checksum."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_schema(path: Path, schema: object) -> None:
    """Raise Failure if this version cannot read files of `schema`."""
    if type(schema) is not int or schema != SCHEMA:
        raise Failure(
            f"{path} has schema {str(schema)[:20]} and this version reads {SCHEMA}: use the "
            "version of tape-arith that wrote it"
        )


def write_validated(path: Path, content: Mapping[str, Any], model: type[_Document]) -> None:
    """Write a document that `model` can read. Raises InvalidValue; Failure if writing fails."""
    validated(content, model)
    write_document(path, content, model.kind)


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
    """Read a document. Raises as `read_content`; Corrupt if the content does not fit `model`."""
    remedy = model.remedy.format(path=path, folder=path.parent)
    try:
        return validated(read_content(path, model.kind), model)
    except InvalidValue as error:
        raise Corrupt(f"{path} is corrupt: {error}", remedy) from None
    except Corrupt as error:
        raise Corrupt(error.fault, remedy) from error


def validated(content: object, model: type[_Model], strict: bool | None = None) -> _Model:
    """Convert JSON values to a `model`. Raises InvalidValue with one plain sentence.

    With `strict=False` a number may be given as text, as on the command line.
    """
    # Validating Python objects strictly would refuse a list for a tuple and a dict for a dataclass,
    # so values go through JSON. TOML dates become text, which only text fields accept.
    try:
        text = json.dumps(content, default=str)
        result: _Model = _adapter(model).validate_json(text, strict=strict)  # type: ignore[arg-type]
    except RecursionError:
        raise InvalidValue("nested too deep") from None
    except ValidationError as error:
        raise InvalidValue(_sentence(error, model)) from None
    return result


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _sentence(error: ValidationError, model: type[Any]) -> str:
    """Return a sentence with the invalid field, what it must be, and its value."""
    errors = error.errors(include_url=False)
    # A misspelt field gives two errors, unknown and missing; the unknown field says more.
    first = next((entry for entry in errors if entry["type"] in _UNKNOWN), errors[0])
    kind, name = first["type"], ".".join(map(str, first["loc"]))
    if kind in _UNKNOWN and len(first["loc"]) == 1:
        if is_dataclass(model):
            return str(unknown("key", name, [field.name for field in fields(model)]))
        known = model.model_fields.items()
        return str(unknown("key", name, [field.alias or key for key, field in known]))
    if kind == "value_error" and not first["msg"].startswith("Value error, must"):
        return first["msg"].removeprefix("Value error, ")
    return f"{name[:80]!r} {_plain_words(first)}"


def must_be(error: ValidationError) -> str:
    """Return what the value of an option must be, and what it is."""
    return _plain_words(error.errors(include_url=False)[0])


def _plain_words(entry: ErrorDetails) -> str:
    message = entry["msg"]
    for pattern, words in _PLAIN_WORDS.items():
        message = re.sub(pattern, words, message)
    if message.startswith("must") and isinstance(entry["input"], str | int | float | None):
        message += f", not {entry['input']!r:.40}"
    return message


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_PLAIN_WORDS = {
    r"^Value error, '.*' is not one of (.*), (.*)\.$": r"must be \1 or \2",  # a choice of typer
    "^Value error, ": "",
    r"^\w+ should": "must",
    ", (unable|got) .*": "",
    " after validation": "",
    "^Field required": "is missing",
    "^(Extra inputs are not permitted|Unexpected keyword argument)": "is unknown",
    "^Unable to parse input string as an integer, .*": "has too many digits",
    "^(.* not allowed as a|must be an instance of) Sequence.*": "must be a list",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid string": "text",
    "a valid (array|list)": "a list",
    "a valid ": "a ",
}
"""Patterns in pydantic's words after the name of a field, and ours for them."""
