"""Parse names of encodings and tasks, as on the command line and in JSON.

The name of an encoding reads `name[:option=value...][+name...][@from=name]`.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from tape_arith.arith.registry.declarations import MODEL, Declaration, Value, value_text
from tape_arith.arith.registry.locate import (
    Location,
    is_encoding,
    known_names,
    locate,
    normalized,
    trainable_names,
)
from tape_arith.models.errors import UsageError, unknown

_ORIGIN = re.compile("@(only-positional-)?from=")


@dataclass(frozen=True)
class NamePart:
    """One name with its options that differ from the defaults, sorted."""

    name: str
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={value_text(value)}" for key, value in self.options)])


@dataclass(frozen=True)
class Encoding:
    """A trained encoding of one or more parts; its weights are new or start from `origin`."""

    parts: tuple[NamePart, ...]
    origin: "Origin | None" = None

    def __str__(self) -> str:
        return self.own + ("" if self.origin is None else str(self.origin))

    @property
    def own(self) -> str:
        """The name without the origin of the weights."""
        return "+".join(map(str, self.parts))

    def locations(self) -> list[Location]:
        """Locate each part. Raises UsageError if one is unknown."""
        return [locate("encoding", part.name) for part in self.parts]


@dataclass(frozen=True)
class Origin:
    """The encoding whose final weights a run starts from: `tape@from=rope`.

    only_positional  whether only parameters of the encoding are trained, none of the decoder
    """

    encoding: Encoding
    only_positional: bool = False

    def __str__(self) -> str:
        return f"@{'only-positional-' if self.only_positional else ''}from={self.encoding}"


@dataclass(frozen=True)
class Name:
    """An encoding and its extrapolation at test time: `abacus+rope+yarn`."""

    encoding: Encoding
    extrapolation: NamePart | None = None

    def __str__(self) -> str:
        return "+".join(map(str, filter(None, (self.encoding, self.extrapolation))))

    def locations(self) -> list[Location]:
        """Locate each part and the extrapolation. Raises UsageError if one is unknown."""
        change = self.extrapolation
        added = [] if change is None else [locate("extrapolation", change.name)]
        return self.encoding.locations() + added


def parse(text: str) -> Name:
    """Parse the name of an encoding. Raises UsageError.

    >>> name = parse("rope+abacus+yarn:ramp=paper")
    >>> str(name.encoding), str(name.extrapolation)
    ('abacus+rope', 'yarn:ramp=paper')

    Default options are dropped and joined parts sorted by name, so that an encoding has one name.
    `models/build.py` refuses parts that cannot be joined. An extrapolation follows the origin:

    >>> name = parse("tape@only-positional-from=rope+yarn")
    >>> str(name.encoding), str(name.encoding.origin.encoding), str(name.extrapolation)
    ('tape@only-positional-from=rope', 'rope', 'yarn')
    """
    match = _ORIGIN.search(text)
    if match is None:
        return _parse_joined(text)
    own, source = _parse_joined(text[: match.start()]), parse(text[match.end() :])
    if own.extrapolation is not None:
        raise UsageError(f"'{text}': {own.extrapolation} is for test time and comes last")
    origin = Origin(source.encoding, only_positional=match[1] is not None)
    return Name(Encoding(own.encoding.parts, origin), source.extrapolation)


def parse_or_split(text: str) -> Name:
    """Parse a name as results have it; if its file is not here, take it apart unchecked.

    >>> name = parse_or_split("gone.py:Mine:width=3+yarn")
    >>> str(name.encoding), str(name.extrapolation)
    ('gone.py:Mine:width=3', 'yarn')
    """
    with suppress(UsageError):
        return parse(text)
    encoding, plus, last = text.rpartition("+")
    known = plus and normalized(name_and_options(last)[0]) in known_names("extrapolation")
    extrapolation = parse_extrapolation(last) if known else None
    return Name(Encoding((NamePart(encoding if known else text),)), extrapolation)


def parse_extrapolation(text: str) -> NamePart:
    """Parse the name of an extrapolation, as in `yarn:ramp=paper`. Raises UsageError."""
    return _part("extrapolation", text)


def parse_task(text: str) -> NamePart:
    """Parse the name of a task with its options; default options are dropped.

    Raises UsageError if the task or an option is unknown.

    >>> str(parse_task("addition:spaces=0:order=plain"))
    'addition:order=plain'
    """
    return _part("task", text)


def task_location(text: str) -> Location:
    """Locate a task. Raises UsageError as `parse_task`.

    Unless it is built in, it is a user's code, which a name in another's results must not run.
    """
    return locate("task", parse_task(text).name)


def parse_list(text: str) -> list[Name]:
    """Parse names separated by commas, without duplicates, in order. Raises UsageError."""
    return list(dict.fromkeys(parse(name) for name in text.split(",") if name.strip()))


def read_contrast(text: str) -> tuple[str, str]:
    """Return the canonical names of the two encodings in "aug-rope - rope". Raises UsageError."""
    names = [str(parse(name.strip())) for name in text.split(" - ")]
    if len(names) != 2 or names[0] == names[1]:
        raise UsageError(
            f"a contrast reads A - B with spaces, as in 'aug-rope - rope', not '{text}'"
        )
    return names[0], names[1]


def is_builtin(encoding: Encoding) -> bool:
    """Tell whether every part is built in, not from a user's file or a package."""
    try:
        return all(location.is_builtin for location in encoding.locations())
    except UsageError:
        return False


def declared_kinds(encoding: Encoding) -> list[str]:
    """Return the kinds of the parts, each once. Raises UsageError if a part is unknown.

    >>> declared_kinds(parse("abacus+rope+yarn").encoding)
    ['task-structured', 'rotary']
    """
    return list(dict.fromkeys(part.declaration().kind for part in encoding.locations()))


def is_model(encoding: Encoding) -> bool:
    """Tell whether a part is a model, which is built in the place of the decoder.

    >>> is_model(parse("gru").encoding), is_model(parse("rope").encoding)
    (True, False)
    """
    return MODEL in declared_kinds(encoding)


def check_encoding(name: Name, work: str) -> None:
    """Raise UsageError if `name` is that of a model, which `work` cannot look into."""
    if is_model(name.encoding):
        raise UsageError(f"{name.encoding} is a model, and {work}: name an encoding")


def told_tested_length(encoding: Encoding) -> bool:
    """Tell whether training depends on the longest tested length, as the parts declare.

    So it does if that of the weights that it starts from did. Raises UsageError if a part is
    unknown.

    >>> [told_tested_length(parse(name).encoding) for name in ("rope", "abacus", "abacus:k=20")]
    [False, True, False]
    """
    declared = [(part, locate("encoding", part.name).declaration()) for part in encoding.parts]
    if encoding.origin is not None and told_tested_length(encoding.origin.encoding):
        return True
    return any(d.told_by and d.told_by not in dict(part.options) for part, d in declared)


def source_hashes(encoding: Encoding) -> dict[str, str]:
    """Hash the file of each part that is not built in, but not the files that it imports.

    Raises UsageError if a part is unknown or cannot be read.
    """
    return {part.name: part.sha256() for part in encoding.locations() if not part.is_builtin}


def read_options(text: str, settings: Iterable[str], declared: Declaration) -> dict[str, Value]:
    """Convert the `settings` ("key=value") of the name `text`. Raises UsageError."""
    values: dict[str, Value] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"'{text}': an option reads key=value, not '{setting}'")
        if key not in declared.options:
            raise unknown(f"option of {declared.name}", key, declared.options)
        if key in values:
            raise UsageError(f"'{text}' gives {key} twice")
        if problem := declared.options[key].problem:
            raise UsageError(f"'{text}': option '{key}' {problem}")
        try:
            values[key] = declared.options[key].read(value)
        except ValueError as error:
            raise UsageError(f"'{text}': {key} must be {error}, not '{value}'") from None
    return values


def _parse_joined(text: str) -> Name:
    first, *rest = text.split("+")
    parts = [_part("encoding", first)]
    extrapolation: NamePart | None = None
    for joined in rest:
        kind = _kind_after_plus(joined)
        part = _part(kind, joined)
        if extrapolation is not None:
            raise UsageError(
                f"'{text}': {extrapolation} is for test time and comes last, and at most one "
                "extrapolation can follow a plus"
            )
        if kind == "extrapolation":
            extrapolation = part
        elif part.name in (earlier.name for earlier in parts):
            raise UsageError(f"'{text}' names {part.name} twice")
        else:
            parts.append(part)
    parts.sort(key=lambda part: part.name)
    return Name(Encoding(tuple(parts)), extrapolation)


def _part(kind: str, text: str) -> NamePart:
    """Parse a name with its options. Raises UsageError."""
    name, settings = name_and_options(text)
    declared = locate(kind, name).declaration()
    values = read_options(text, settings, declared)
    changed = {k: v for k, v in values.items() if v != declared.options[k].default}
    return NamePart(declared.name, tuple(sorted(changed.items())))


def name_and_options(text: str) -> tuple[str, list[str]]:
    """Split a name, or FILE.py:CLASS, from its options.

    >>> name_and_options("mine.py:Mine:width=4")
    ('mine.py:Mine', ['width=4'])
    """
    name, *rest = text.strip().split(":")
    if name.endswith(".py") and rest:
        return f"{name}:{rest[0]}", rest[1:]
    return name, rest


def _kind_after_plus(text: str) -> str:
    name, _ = name_and_options(text)
    if name.partition(":")[0].endswith(".py") or is_encoding(name):
        return "encoding"
    if normalized(name) in known_names("extrapolation"):
        return "extrapolation"
    known = chain(trainable_names(), known_names("extrapolation"))
    raise unknown("encoding or extrapolation", name, known)
