"""Documents: JSON files with a schema number, a checksum and a model that says what is in them.

All kinds of documents share one schema number. The checksum covers the content, not the layout: it
finds a changed digit and ignores new line breaks. It protects from accidents, not from somebody who
writes a document on purpose; what such a document may hold is for pydantic to check.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tape_arith.arith.errors import Corrupt, Failure, unknown
from tape_arith.arith.files import MOST_INTEGER, parse_json, read_text, write_text

SCHEMA = 2
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
_SHOWN, _MOST_MESSAGE = 40, 300
"""Characters of a wrong value that a message shows, and of a message."""


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


class InvalidValue(ValueError):
    """A value that its model does not allow."""


class Strict:
    """Base of frozen dataclasses that are read from documents: pydantic takes no unknown field."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


class Part(BaseModel):
    """Base of models of a part of a document."""

    model_config = STRICT


class Document(Protocol):
    """A model of a whole file."""

    kind: ClassVar[str]
    remedy: ClassVar[str]
    """What to do about a corrupt one; `{path}` and `{folder}` are filled in."""


Model = TypeVar("Model")
DocumentModel = TypeVar("DocumentModel", bound=Document)


def validated(content: object, model: type[Model]) -> Model:
    """Return what JSON values say as a `model`. Raises InvalidValue, one plain sentence."""
    # As JSON, because strict validation of Python objects takes no list for a tuple and no dict for
    # a dataclass. Dates of TOML become text, which no field takes for anything else.
    try:
        text = json.dumps(content, default=str)
    except RecursionError:
        raise InvalidValue("nested too deep") from None
    return validated_json(text, model)


def validated_json(text: str, model: type[Model]) -> Model:
    """Return what JSON says as a `model`. Raises InvalidValue, one plain sentence."""
    try:
        result: Model = _adapter(model).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InvalidValue(_sentence(error, model)) from None
    return result


def with_checksum(content: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return `content` with its schema number, its kind and its checksum."""
    # As it is read back: a tuple becomes a list, a number as a key becomes text.
    document = json.loads(json.dumps({"schema": SCHEMA, "kind": kind, **content}, allow_nan=False))
    return {**document, "checksum": checksum(document)}


def checksum(content: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits over a document without its checksum."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_document(path: Path, content: Mapping[str, Any], kind: str) -> None:
    """Write a document, whole or not at all. Raises Failure if the disk refuses."""
    write_text(path, json.dumps(with_checksum(content, kind), indent=1) + "\n")


def read_content(path: Path, kind: str) -> dict[str, Any]:
    """Return the content of a document without schema, kind and checksum.

    Raises Failure, naming the file, if it is of another kind or version; Corrupt if it is damaged.
    """
    try:
        content = parse_json(read_text(path))
        if not isinstance(content, dict) or content.get("kind") != kind:
            raise Failure(f"{path} is not a {kind} of tape-arith")
        schema, stored = content.get("schema"), content.pop("checksum", None)
        if type(schema) is not int or schema != SCHEMA:
            raise Failure(other_schema(path, schema))
        if stored != checksum(content):
            raise Corrupt(f"{path} is corrupt: its checksum does not match its content")
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{path} is corrupt: not JSON ({error})") from error
    return {key: value for key, value in content.items() if key not in ("schema", "kind")}


def read_document(path: Path, model: type[DocumentModel]) -> DocumentModel:
    """Read a document. Raises as `read_content`; Corrupt also if `model` does not allow it."""
    try:
        try:
            return validated(read_content(path, model.kind), model)
        except InvalidValue as error:
            raise Corrupt(f"{path} is corrupt: {error}") from None
    except Corrupt as error:
        remedy = model.remedy.format(path=path, folder=path.parent)
        raise Corrupt(f"{error}; {remedy}") from error


def other_schema(path: Path, schema: object) -> str:
    """Say what to do about a file whose schema this version does not read."""
    return (
        f"{path} has schema {str(schema)[:_SHOWN]} and this version reads {SCHEMA}: use the "
        "version of tape-arith that wrote it"
    )


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _sentence(error: ValidationError, model: type[Any]) -> str:
    """Say in a plain sentence which field is wrong, what it is and what it should be."""
    errors = error.errors(include_url=False)
    # A misspelt field is unknown, and another is missing for it: the misspelling tells more.
    first = next((one for one in errors if one["type"] in _UNKNOWN), errors[0])
    name = ".".join(map(str, first["loc"]))
    if first["type"] in _UNKNOWN and len(first["loc"]) == 1:
        return str(unknown("key", name, _fields(model)))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and not message.startswith("must"):
        return message if len(message) <= _MOST_MESSAGE else f"{message[:_MOST_MESSAGE]}..."
    for pydantic_words, words in _WORDS.items():
        message = message.replace(pydantic_words, words)
    value = first["input"]
    if first["type"] not in ("missing", *_UNKNOWN) and isinstance(value, str | int | float | None):
        shown = repr(value[:_SHOWN] if isinstance(value, str) else value)
        message += f", not {shown[: _SHOWN + 2]}"
    return f"{name[:80]!r} {message}"


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_WORDS = {
    "Field required": "is missing",
    "Extra inputs are not permitted": "is unknown",
    "Unexpected keyword argument": "is unknown",
    "Input should be": "must be",
    "String should": "must",
    "List should": "must",
    "Dictionary should": "must",
    " after validation": "",
    "a valid array": "a list",
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "match pattern '^[0-9a-f]{64}$'": "be a SHA-256",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}
"""What replaces pydantic's words in a sentence that begins with the name of a field."""


def _fields(model: type[Any]) -> list[str]:
    if is_dataclass(model):
        return [field.name for field in fields(model)]
    return [field.alias or name for name, field in model.model_fields.items()]
