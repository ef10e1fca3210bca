"""Names of encodings: which there are, what they are, and how a name on the command line reads.

The folders models/encodings and models/extrapolations are the registry: a file is a name. An
installed package adds names by entry points, and a file of the user's is named by its path. Files
are read as text here, never imported, so that listing and completion need no torch and run nobody
else's code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models import registry, source
from models.errors import UsageError, unknown
from models.registry import Place
from models.source import Entry as Entry
from models.source import Option as Option
from models.source import Value as Value

FOLDERS = {
    "encoding": Path(__file__).parent / "encodings",
    "extrapolation": Path(__file__).parent / "extrapolations",
}
BACKENDS = Path(__file__).parent / "backends"


@dataclass(frozen=True)
class Part:
    """One name with its options that differ from the defaults, sorted."""

    name: str
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={_text(value)}" for key, value in self.options)])


@dataclass(frozen=True)
class Encoding:
    """What is trained: one part, or several joined with a plus, as in `abacus+fire`; from weights
    of its own or from those of `origin`."""

    parts: tuple[Part, ...]
    origin: "Origin | None" = None

    def __str__(self) -> str:
        return self.own + ("" if self.origin is None else str(self.origin))

    @property
    def own(self) -> str:
        """The name without where its training began."""
        return "+".join(map(str, self.parts))


@dataclass(frozen=True)
class Origin:
    """Weights that are not drawn afresh but those of a run of `encoding`: `tape@from=rope`. With
    `only_positional` the encoding's own parameters alone are trained."""

    encoding: Encoding
    only_positional: bool = False

    def __str__(self) -> str:
        return f"@{'only-positional-' if self.only_positional else ''}from={self.encoding}"


_ORIGIN = re.compile("@(only-positional-)?from=")


@dataclass(frozen=True)
class Name:
    """A positional encoding as it is asked for: `fire:init_l=512`, `abacus+rope+yarn`."""

    encoding: Encoding
    extrapolation: Part | None = None

    def __str__(self) -> str:
        return "+".join(map(str, filter(None, (self.encoding, self.extrapolation))))


def places(kind: str) -> list[Place]:
    """Where the names of a kind ("encoding", "extrapolation") are written: the files of its
    folder, and the entry points of the group `tape_arith.encodings` (or `.extrapolations`)."""
    ours = registry.in_folder(FOLDERS[kind], f"models.{kind}s")
    return [*ours, *registry.installed(f"tape_arith.{kind}s")]


def names(kind: str) -> list[str]:
    """Names of a kind ("encoding", "extrapolation"), installed packages' too."""
    return sorted({place.name for place in places(kind)})


def place(kind: str, name: str) -> Place:
    """Where `name` is written, which may be an alias, spelled with underscores, or `FILE.py:CLASS`.

    Errors: UsageError for an unknown name, one that several have, and a file that is not there.
    """
    path = registry.leading_file(name)
    if kind == "encoding" and path is not None and len(path) + 1 < len(name):
        return registry.of_file(path, name[len(path) + 1 :])
    if kind == "encoding" and name.rstrip(":").endswith(".py"):
        raise UsageError(f"'{name}': {registry.no_file(name.rstrip(':'))}")
    found = _find(kind, name)
    if found is None:
        raise unknown(kind, name, names(kind))
    return found


def entry(kind: str, name: str) -> Entry:
    """What the file of `name` says of itself. Errors: UsageError as `place` and `source.read`."""
    return source.read(place(kind, name))


def entries(kind: str) -> list[Entry]:
    """Of all names of a kind. What is wrong with those of packages is said in their entries, for it
    must not hide the others. Errors: UsageError for a file of ours."""
    known = sorted(places(kind), key=lambda place: place.name)
    return [_listed(kind, place, known) for place in known]


def sources(encoding: Encoding) -> dict[str, str]:
    """The hash of the file of each part that is not ours: what a result depends on besides this
    suite's version. Files that such a file imports are not in it. Errors: UsageError."""
    found = [place("encoding", part.name) for part in encoding.parts]
    return {place.name: place.sha256() for place in found if not place.ours}


def parse(text: str) -> Name:
    """The encoding that `text` names: `name[:key=value...][+name[:key=value...]...]`.

    >>> str(parse("fire:init_l=512"))
    'fire:init_l=512'
    >>> str(parse("randpe"))
    'rand-rope'
    >>> name = parse("abacus+rope+yarn:ramp=paper")
    >>> str(name.encoding), str(name.extrapolation)
    ('abacus+rope', 'yarn:ramp=paper')

    Options at their defaults are dropped and the part that defines attention comes last, after the
    others by name, so that one encoding has one name. Which encodings can be joined is for
    `models.build` to say, which knows what they do. Behind `@from=` stands the encoding of the run
    that training began from, and behind that what is added at test time. Errors: UsageError.

    >>> name = parse("tape@only-positional-from=rope+yarn")
    >>> str(name.encoding), str(name.encoding.origin.encoding), str(name.extrapolation)
    ('tape@only-positional-from=rope', 'rope', 'yarn')
    """
    found = _ORIGIN.search(text, len(registry.leading_file(text.strip()) or ""))
    if found:
        own, began = parse(text[: found.start()]), parse(text[found.end() :])
        if own.extrapolation is not None:
            raise UsageError(f"'{text}': {own.extrapolation} is for test time and comes last")
        origin = Origin(began.encoding, only_positional=found[1] is not None)
        return Name(Encoding(own.encoding.parts, origin), began.extrapolation)
    (_, first), *rest = _split(text, "+")
    parts = [_part("encoding", first)]
    extrapolations: list[Part] = []
    for _, joined in rest:
        kind = _kind_after_a_plus(joined)
        part = _part(kind, joined)
        if kind == "extrapolation":
            extrapolations.append(part)
        elif extrapolations:
            raise UsageError(f"'{text}': {extrapolations[0]} is for test time and comes last")
        elif part.name in (other.name for other in parts):
            raise UsageError(f"'{text}' names {part.name} twice")
        else:
            parts.append(part)
    if len(extrapolations) > 1:
        raise UsageError(f"'{text}': at most one extrapolation can follow a plus")
    if len(parts) > 1:
        parts.sort(key=lambda part: (source.attends(place("encoding", part.name)), part.name))
    return Name(Encoding(tuple(parts)), *extrapolations)


def parse_extrapolation(text: str) -> Part:
    """The extrapolation that `text` names: `yarn:ramp=paper`. Errors: UsageError."""
    return _part("extrapolation", text)


def parse_list(text: str) -> list[Name]:
    """Names separated by commas, each once, in their order."""
    found: list[str] = []
    for joint, name in _split(text, ",+"):
        if joint == "+":
            found[-1] += f"+{name}"
        else:
            found.append(name)
    return list(dict.fromkeys(parse(name) for name in found if name))


def _split(text: str, joints: str) -> Iterator[tuple[str, str]]:
    """Each name in `text` after the one of `joints` that stands before it (none before the first).
    The path of a file that is there is never cut, whatever it holds."""
    joint = ""
    while True:
        text = text.strip()
        path = registry.leading_file(text) or ""
        ends = [end for each in joints if (end := text.find(each, len(path))) >= 0]
        end = min(ends, default=len(text))
        yield joint, text[:end].strip()
        if not ends:
            return
        joint, text = text[end], text[end + 1 :]


def _head(text: str) -> tuple[str, list[str]]:
    """The name that begins `text`, and its settings."""
    path = registry.leading_file(text)
    if path is None:
        name, *settings = text.split(":")
        return name, settings
    class_name, *settings = text[len(path) + 1 :].split(":")
    return f"{path}:{class_name}", settings


def _kind_after_a_plus(text: str) -> str:
    """Of what kind the name that begins `text` is. Errors: UsageError where it is of none."""
    name, _ = _head(text)
    if registry.leading_file(name) or name.endswith(".py"):
        return "encoding"
    for kind in FOLDERS:
        if registry.matching(places(kind), name):
            return kind
    for kind in FOLDERS:  # an alias takes a look into every file
        if _find(kind, name):
            return kind
    raise unknown("encoding or extrapolation", name, [n for kind in FOLDERS for n in names(kind)])


def _part(kind: str, text: str) -> Part:
    name, settings = _head(text.strip())
    found = place(kind, name)
    name, declared = found.name, source.read(found).options
    chosen: dict[str, Value] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"'{text}': an option reads key=value, not '{setting}'")
        if key not in declared:
            raise unknown(f"option of {name}", key, declared)
        if key in chosen:
            raise UsageError(f"'{text}' gives {key} twice")
        try:
            chosen[key] = declared[key].read(value)
        except ValueError as error:
            raise UsageError(f"'{text}': {key} must be {error}, not '{value}'") from None
    given = sorted((k, v) for k, v in chosen.items() if v != declared[k].default)
    return Part(name, tuple(given))


def _find(kind: str, name: str) -> Place | None:
    """Where `name` is written, None where it is not known. A name goes before an alias.

    Errors: UsageError where several have it, or a package has a name that is an alias of ours.
    """
    known = places(kind)
    found = registry.matching(known, name)
    if not found or not all(place.ours for place in found):
        alias = registry.spelled(name)
        found += [p for p in known if p not in found and alias in _listed(kind, p, known).aliases]
    return registry.only(kind, name, found) if found else None


def _listed(kind: str, place: Place, known: list[Place]) -> Entry:
    if place.ours:
        return source.read(place)
    try:
        registry.only(kind, place.name, registry.matching(known, place.name))
        return source.read(place)
    except UsageError as error:
        return Entry(place.name, package=place.package, problem=str(error))


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # Every digit counts: two values never share a name. A plus would start an extrapolation.
    return str(value).removesuffix(".0").replace("e+", "e")


def known_backend(request: str) -> str:
    """The `request` of --attention: "auto" or one of `backends`. Errors: UsageError."""
    known = ["auto", *backends()]
    if request not in known:
        raise unknown("attention backend", request, known)
    return request


def backends() -> list[str]:
    """What computes attention, as after --attention: the files of models/backends."""
    own = ("__init__", "backend")
    return sorted(f.stem.replace("_", "-") for f in BACKENDS.glob("*.py") if f.stem not in own)
