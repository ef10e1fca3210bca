"""What the file of an encoding says of itself, read as text: its class, summary, kind, paper and
options. Nothing is imported, so that listing needs no torch and runs nobody's code.
"""

import ast
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from typing import Any

from models import registry
from models.errors import UsageError
from models.registry import Place

Value = str | int | float | bool | None
_FACTS = ("kind", "paper", "aliases")
_ATTENTION = ("layer", "start")


@dataclass(frozen=True)
class Option:
    """A keyword-only argument of a class: its annotation as written, and its default. `problem`
    says why the default cannot be told, if so; it is None then."""

    annotation: str
    default: Value
    problem: str = ""

    def read(self, text: str) -> Value:
        """The value that `text` stands for. Errors: ValueError saying what is right."""
        if "Literal[" in self.annotation:
            written = ast.literal_eval(self.annotation[self.annotation.index("[") :].split("|")[0])
            choices: dict[str, Value] = {str(choice): choice for choice in written}
            if text not in choices:
                raise ValueError(f"one of {', '.join(choices)}")
            return choices[text]
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
    """What a file says of itself. `package` is the one that it comes from, empty for what is ours;
    `problem` says why it cannot be used, if so."""

    name: str
    class_name: str = ""
    summary: str = ""
    kind: str = ""
    paper: str = ""
    aliases: tuple[str, ...] = ()
    options: dict[str, Option] = field(default_factory=dict)
    package: str = ""
    problem: str = ""


def read(place: Place) -> Entry:
    """What the file at `place` says: the docstring's first line of its class, the class attributes
    and the keyword-only arguments of its __init__.

    Errors: UsageError where it cannot be read, is not Python, or has no such public class.
    """
    return _read(place, place.source())


def attends(place: Place) -> bool:
    """Whether the class at `place` defines attention or what travels between layers: it, or a base
    of it, has a `layer` or a `start`. True as well where a base cannot be read, for who only adds
    to the embeddings says so in a line or two.

    Errors: UsageError as `read`.
    """
    return _place_attends(place, place.source())


@cache
def _place_attends(place: Place, source: bytes) -> bool:
    body = _parsed(place, source)
    try:
        return _attends(body, _public_class(place, body).name)
    except RecursionError:  # bases in a circle
        return True


@cache
def _read(place: Place, source: bytes) -> Entry:
    public = _public_class(place, _parsed(place, source))
    facts: dict[str, Any] = {}
    options: dict[str, Option] = {}
    for node in public.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in map(ast.unparse, targets):
                if name in _FACTS:
                    facts[name], _ = _literal(node.value)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            options = _options(node.args)
    aliases = facts.get("aliases")
    return Entry(
        name=place.name,
        class_name=public.name,
        summary=(ast.get_docstring(public) or "").split("\n")[0],
        kind=str(facts.get("kind") or ""),
        paper=str(facts.get("paper") or ""),
        aliases=aliases if isinstance(aliases, tuple) else (),
        options=options,
        package=place.package,
    )


def _parsed(place: Place, source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise UsageError(f"{_file(place)} is not Python: {line}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        # ValueError: a null byte; the last two: nested deeper than the parser goes
        raise UsageError(f"{_file(place)} is not Python: {error}") from error


def _classes(body: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in body.body if isinstance(node, ast.ClassDef)}


def _public_class(place: Place, body: ast.Module) -> ast.ClassDef:
    """The class that a place names, or else the one that its file exists for: its last (helpers
    stand above it)."""
    public = {name: node for name, node in _classes(body).items() if not name.startswith("_")}
    if not public:
        raise UsageError(f"{_file(place)} defines no class for '{place.name}'")
    if place.class_name and place.class_name not in public:
        raise UsageError(
            f"{_file(place)} defines no public class '{place.class_name}', only "
            f"{', '.join(public)}: names and options are read from where the class is written"
        )
    return public[place.class_name or list(public)[-1]]


def _attends(body: ast.Module, name: str, *, imported: bool = False) -> bool:
    """`imported`: it is the one that the file imports, and has a class of its own of that name."""
    node = None if imported else _classes(body).get(name)
    if node is None:
        origin = _imported_from(body, name)
        if origin is None:
            return True
        file = registry.source_file(origin)
        if file is None:
            return True
        try:
            there = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
            return True
        return _attends(there, name)
    if any(isinstance(n, ast.FunctionDef) and n.name in _ATTENTION for n in node.body):
        return True
    bases = [ast.unparse(base) for base in node.bases]
    return any(
        base != "PositionalEncoding" and _attends(body, base, imported=base == name)
        for base in bases
    )


def _imported_from(body: ast.Module, name: str) -> str | None:
    """The module of `from module import name`; None where there is no such line."""
    for node in body.body:
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        if any(alias.name == name and alias.asname in (None, name) for alias in node.names):
            return node.module
    return None


def _file(place: Place) -> str:
    """Where a person looks: a file of ours by its place in this suite."""
    return str(place) if place.ours else str(place.file)


def _literal(node: ast.expr) -> tuple[Any, bool]:
    """The value that an expression writes out, and whether it does."""
    try:
        return ast.literal_eval(node), True
    except (ValueError, TypeError):
        return None, False


def _options(arguments: ast.arguments) -> dict[str, Option]:
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {argument.arg: _option(argument.annotation, default) for argument, default in pairs}


def _option(annotation: ast.expr | None, default: ast.expr | None) -> Option:
    written = ast.unparse(annotation) if annotation else "str"
    if default is None:
        return Option(written, None, "has no default, so that no name without it can be built")
    value, told = _literal(default)
    if not told or not isinstance(value, str | int | float | None):
        return Option(
            written,
            None,
            f"has the default `{ast.unparse(default)}`, which is read without running the file: "
            "write it as a plain number, text, True, False or None",
        )
    return Option(written, value)
