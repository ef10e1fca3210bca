"""Names of encodings: which there are, what they are, and how a name on the command line reads.

The folders models/encodings and models/extrapolations are the registry: a file is a name. Files
are read as text here, never imported, so that listing and completion need no torch.
"""

import ast
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path

from models.errors import UsageError, unknown

FOLDERS = {
    "encoding": Path(__file__).parent / "encodings",
    "extrapolation": Path(__file__).parent / "extrapolations",
}
BACKENDS = Path(__file__).parent / "backends"
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Option:
    """A keyword-only argument of a class: its annotation as written, and its default."""

    annotation: str
    default: Value

    def read(self, text: str) -> Value:
        """The value that `text` stands for. Errors: ValueError saying what is right."""
        if "Literal[" in self.annotation:
            choices = ast.literal_eval(self.annotation[self.annotation.index("[") :].split("|")[0])
            if text not in choices:
                raise ValueError(f"one of {', '.join(choices)}")
            return text
        try:
            if self.annotation.startswith("int"):
                return int(text)
            if self.annotation.startswith("float"):
                number = float(text)
                if not isfinite(number):
                    raise ValueError
                return number
        except ValueError:
            kind = "a whole number" if self.annotation.startswith("int") else "a number"
            raise ValueError(kind) from None
        if self.annotation.startswith("bool"):
            if text not in ("true", "false"):
                raise ValueError("true or false")
            return text == "true"
        return text


@dataclass(frozen=True)
class Entry:
    """What a file of the registry says of itself."""

    name: str
    class_name: str
    summary: str
    kind: str
    paper: str
    aliases: tuple[str, ...]
    options: dict[str, Option]

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Part:
    """One name with its options that differ from the defaults, sorted."""

    name: str
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={_text(value)}" for key, value in self.options)])


@dataclass(frozen=True)
class Encoding:
    """What is trained: one part, or several joined with a plus, as in `abacus+fire`."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))


@dataclass(frozen=True)
class Name:
    """A positional encoding as it is asked for: `fire:init_l=512`, `abacus+rope+yarn`."""

    encoding: Encoding
    extrapolation: Part | None = None

    def __str__(self) -> str:
        return "+".join(map(str, filter(None, (self.encoding, self.extrapolation))))


def names(kind: str) -> list[str]:
    """Names of a kind ("encoding", "extrapolation"): the files of its folder."""
    return sorted(
        path.stem.replace("_", "-")
        for path in FOLDERS[kind].glob("*.py")
        if not path.stem.startswith("_")
    )


@cache
def entry(kind: str, name: str) -> Entry:
    """What the file of `name` says of itself: its one public class, its docstring's first line,
    its class attributes and the keyword-only arguments of its __init__.

    Errors: UsageError for an unknown name, and for a file that defines no public class.
    """
    if name not in names(kind):
        raise unknown(kind, name, names(kind))
    path = FOLDERS[kind] / f"{name.replace('-', '_')}.py"
    public = _public_class(path, name)
    facts: dict[str, Value | tuple[str, ...]] = {}
    options: dict[str, Option] = {}
    for node in public.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Constant | ast.Tuple
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            facts |= {ast.unparse(target): ast.literal_eval(node.value) for target in targets}
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            options = _options(node.args)
    aliases = facts.get("aliases", ())
    return Entry(
        name=name,
        class_name=public.name,
        summary=(ast.get_docstring(public) or "").split("\n")[0],
        kind=str(facts.get("kind", "")),
        paper=str(facts.get("paper", "")),
        aliases=aliases if isinstance(aliases, tuple) else (),
        options=options,
    )


def entries(kind: str) -> list[Entry]:
    return [entry(kind, name) for name in names(kind)]


def parse(text: str) -> Name:
    """The encoding that `text` names: `name[:key=value...][+name[:key=value...]...]`.

    >>> str(parse("fire:init_l=512"))
    'fire:init_l=512'
    >>> str(parse("randpe"))
    'rand-rope'
    >>> name = parse("abacus+rope+yarn:ramp=paper")
    >>> str(name.encoding), str(name.extrapolation)
    ('abacus+rope', 'yarn:ramp=paper')

    Options at their defaults are dropped, so that one encoding has one name. Which encodings can
    be joined is for `models.build` to say, which knows what they do. Errors: UsageError.
    """
    first, *rest = text.strip().split("+")
    parts = [_part("encoding", first)]
    extrapolations: list[Part] = []
    for joined in rest:
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
    return Name(Encoding(tuple(parts)), *extrapolations)


def parse_extrapolation(text: str) -> Part:
    """The extrapolation that `text` names: `yarn:ramp=paper`. Errors: UsageError."""
    return _part("extrapolation", text)


def parse_list(text: str) -> list[Name]:
    """Names separated by commas, each once, in their order."""
    return list(dict.fromkeys(parse(part) for part in text.split(",") if part.strip()))


def _kind_after_a_plus(text: str) -> str:
    """Of what kind the name that begins `text` is. Errors: UsageError where it is of none."""
    name = text.strip().split(":")[0]
    for kind in FOLDERS:
        if _find(kind, name) is not None:
            return kind
    raise unknown("encoding or extrapolation", name, [n for kind in FOLDERS for n in names(kind)])


def _part(kind: str, text: str) -> Part:
    name, *settings = text.strip().split(":")
    name = _resolve(kind, name)
    declared = entry(kind, name).options
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


def _resolve(kind: str, name: str) -> str:
    """The file's name for `name`, which may be an alias or spelled with underscores."""
    found = _find(kind, name)
    if found is None:
        raise unknown(kind, name, names(kind))
    return found


def _find(kind: str, name: str) -> str | None:
    name = name.replace("_", "-").lower()
    if name in names(kind):
        return name
    return next((known.name for known in entries(kind) if name in known.aliases), None)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # Every digit counts: two values never share a name. A plus would start an extrapolation.
    return str(value).removesuffix(".0").replace("e+", "e")


def _public_class(path: Path, name: str) -> ast.ClassDef:
    """The class that the file exists for: its last one (helpers stand above it)."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except SyntaxError as error:
        raise UsageError(f"models/{path.parent.name}/{path.name} is not Python: {error}") from error
    classes = [
        node for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    if not classes:
        raise UsageError(f"models/{path.parent.name}/{path.name} defines no class for '{name}'")
    return classes[-1]


def _literal(default: ast.expr, name: str) -> Value:
    try:
        value: Value = ast.literal_eval(default)
    except ValueError:
        raise UsageError(
            f"the default of option '{name}' is `{ast.unparse(default)}`: write it as a plain "
            "value, since names and options are read without importing"
        ) from None
    return value


def _options(arguments: ast.arguments) -> dict[str, Option]:
    return {
        argument.arg: Option(
            ast.unparse(argument.annotation) if argument.annotation else "str",
            None if default is None else _literal(default, argument.arg),
        )
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }


def backends() -> list[str]:
    """What computes attention, as after --attention: the files of models/backends."""
    own = ("__init__", "backend")
    return sorted(f.stem.replace("_", "-") for f in BACKENDS.glob("*.py") if f.stem not in own)
