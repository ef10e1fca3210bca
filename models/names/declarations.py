"""Read what the file of an encoding declares: class, summary, kind, paper and options.

Files are parsed, never imported, so that listing needs no torch and runs nobody else's code.
"""

import ast
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from typing import Any

from tape_arith.models.errors import UsageError
from tape_arith.models.names.locate import (
    Location,
    locate,
    locations,
    matching,
    single,
)

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Option:
    """A keyword-only argument of a class: its annotation as written, and its default.

    `problem` says why the default cannot be read; the default is None then.
    """

    annotation: str
    default: Value
    problem: str = ""

    def read(self, text: str) -> Value:
        """Convert `text`. Raises ValueError that says what is accepted."""
        if "Literal[" in self.annotation:
            written = ast.literal_eval(self.annotation[self.annotation.index("[") :].split("|")[0])
            choices: dict[str, Value] = {str(choice): choice for choice in written}
            if text not in choices:
                raise ValueError(f"one of {', '.join(choices)}")
            return choices[text]
        if self.annotation.startswith("bool"):
            if text not in ("true", "false"):
                raise ValueError("true or false")
            return text == "true"
        if self.annotation.startswith("int"):
            return _number(int, text, "a whole number")
        if self.annotation.startswith("float"):
            return _number(float, text, "a number")
        return text


@dataclass(frozen=True)
class Declaration:
    """The facts that a file declares; `problem` says why they cannot be used, if so."""

    name: str
    class_name: str = ""
    summary: str = ""
    kind: str = ""
    paper: str = ""
    aliases: tuple[str, ...] = ()
    options: dict[str, Option] = field(default_factory=dict)
    package: str = ""
    problem: str = ""


def declaration(kind: str, name: str) -> Declaration:
    """Read the declaration of a name. Raises UsageError if there is none or it cannot be read."""
    return read_declaration(locate(kind, name))


def declarations(kind: str) -> list[Declaration]:
    """List all declarations of a kind.

    A package's file that cannot be read gives a `problem`, so that it does not hide the others.
    """
    known = sorted(locations(kind), key=lambda location: location.name)
    return [_listed(kind, location, known) for location in known]


def read_declaration(location: Location) -> Declaration:
    """Parse the file at `location`.

    Raises UsageError if it cannot be read, is not Python or has no such public class.
    """
    return _read(location, location.source())


def _listed(kind: str, location: Location, known: list[Location]) -> Declaration:
    if location.is_builtin:
        return read_declaration(location)
    try:
        return read_declaration(single(kind, location.name, matching(known, location.name)))
    except UsageError as error:
        return Declaration(location.name, package=location.package, problem=str(error))


@cache
def _read(location: Location, source: bytes) -> Declaration:
    public = _public_class(location, _parsed(location, source))
    facts: dict[str, Any] = {}
    options: dict[str, Option] = {}
    for node in public.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            facts |= {ast.unparse(target): _literal(node.value)[0] for target in targets}
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            options = {arg.arg: _option(arg.annotation, default) for arg, default in pairs}
    return Declaration(
        name=location.name,
        class_name=public.name,
        summary=(ast.get_docstring(public) or "").split("\n")[0],
        kind=str(facts.get("kind") or ""),
        paper=str(facts.get("paper") or ""),
        aliases=tuple(facts.get("aliases") or ()) if location.is_builtin else (),
        options=options,
        package=location.package,
    )


def _parsed(location: Location, source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise UsageError(f"{_path(location)} is not Python: {line}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        # ValueError: a null byte; the last two: nested deeper than the parser goes
        raise UsageError(f"{_path(location)} is not Python: {error}") from error


def _classes(body: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in body.body if isinstance(node, ast.ClassDef)}


def _public_class(location: Location, body: ast.Module) -> ast.ClassDef:
    """Find the class that a location names, or the last public one: helpers stand above it."""
    public = {name: node for name, node in _classes(body).items() if not name.startswith("_")}
    if not public:
        raise UsageError(f"{_path(location)} defines no class for '{location.name}'")
    if location.class_name and location.class_name not in public:
        raise UsageError(
            f"{_path(location)} defines no public class '{location.class_name}', only "
            f"{', '.join(public)}: names and options are read from where the class is written"
        )
    return public[location.class_name or list(public)[-1]]


def _path(location: Location) -> str:
    return str(location) if location.is_builtin else str(location.file)


def _literal(node: ast.expr) -> tuple[Any, bool]:
    """Return the value of a literal expression, and whether it is one."""
    try:
        return ast.literal_eval(node), True
    except (ValueError, TypeError):
        return None, False


def _option(annotation: ast.expr | None, default: ast.expr | None) -> Option:
    written = ast.unparse(annotation) if annotation else "str"
    if default is None:
        return Option(written, None, "has no default, so that no name without it can be built")
    value, is_literal = _literal(default)
    if is_literal and isinstance(value, str | int | float | None):
        return Option(written, value)
    return Option(
        written,
        None,
        f"has the default `{ast.unparse(default)}`, which is read without running the file: "
        "write it as a plain number, text, True, False or None",
    )


def _number(kind: type[int] | type[float], text: str, description: str) -> int | float:
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(description) from None
    if isinstance(number, float) and not isfinite(number):
        raise ValueError(description)
    return number
