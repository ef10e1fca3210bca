"""Find the file that a name stands for, and read what it declares.

A name is a file of models/encodings (or models/extrapolations), an entry point of an installed
package, or `FILE.py:CLASS` on disk. Files are parsed, and only `Location.load` imports one, so that
listing needs no torch and runs nobody else's code.
"""

import ast
import hashlib
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any

from tape_arith.models.errors import UsageError, unknown

FOLDERS = {kind: Path(__file__).parents[1] / f"{kind}s" for kind in ("encoding", "extrapolation")}
USER_CODE_ERRORS: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Errors to catch around a user's code; a sys.exit(0) in it must not look like success."""

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
        choices: dict[str, Value] = {}
        if "Literal[" in self.annotation:
            written = ast.literal_eval(self.annotation[self.annotation.index("[") :].split("|")[0])
            choices = {str(choice): choice for choice in written}
        elif self.annotation.startswith("bool"):
            choices = {"true": True, "false": False}
        if choices and text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        if choices:
            return choices[text]
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
    options: dict[str, Option] = field(default_factory=dict)
    package: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Location:
    """The file, module and class that a name stands for.

    file        None if it cannot be found without importing a package
    module      empty for a file on disk
    class_name  empty: the last public class of the file
    package     name and version of the installed package; empty for this suite and for files
    """

    name: str
    file: Path | None
    module: str = ""
    class_name: str = ""
    package: str = ""

    def __str__(self) -> str:
        if self.package:
            return f"package {self.package} ({self.module})"
        path = self.module.removeprefix("tape_arith.").replace(".", "/")
        return f"{path}.py" if path else self.name

    @property
    def is_builtin(self) -> bool:
        """Tell whether the file is of this suite, so that the suite's version identifies it."""
        return bool(self.module) and not self.package

    def source(self) -> bytes:
        """Read the file. Raises UsageError if that fails."""
        if self.file is None:
            raise UsageError(
                f"'{self.name}' of {self}: no file of Python source is found for {self.module} "
                "without importing it, and names and options are read from that: install the "
                "package as plain files"
            )
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read: {error.strerror or error}") from error

    def sha256(self) -> str:
        """Hash the file. Raises UsageError if it cannot be read."""
        return hashlib.sha256(self.source()).hexdigest()

    def declaration(self) -> Declaration:
        """Parse the file.

        Raises UsageError if it cannot be read, is not Python or has no such public class.
        """
        return _declaration(self, self.source())

    def load(self) -> ModuleType:
        """Import the file, which runs its code. Raises UsageError if a user's file fails."""
        if self.is_builtin:
            return import_module(self.module)
        try:
            return import_module(self.module) if self.module else _import_file(self)
        except UsageError:
            raise
        except USER_CODE_ERRORS as error:
            message = f"{self} cannot be imported: {describe_error(error, self)}"
            raise UsageError(message) from error


def locate(kind: str, name: str) -> Location:
    """Find a name or `FILE.py:CLASS`. Raises UsageError if there is none, or several."""
    path, _, class_name = name.partition(":")
    if kind == "encoding" and path.endswith(".py"):
        return _on_disk(path, class_name)
    return select(kind, locations(kind), name)


def select(kind: str, locations: Iterable[Location], name: str) -> Location:
    """Return the location of `name`. Raises UsageError if there is none, or several."""
    locations = list(locations)
    matches = [location for location in locations if location.name == normalized(name)]
    if not matches:
        raise unknown(kind, name, {location.name for location in locations})
    if len(matches) > 1:
        *first, last = map(str, matches)
        raise UsageError(
            f"the {kind} '{name}' is of {', '.join(first)} and of {last}: one name cannot be two "
            "things, so rename or uninstall what is not tape-arith's own"
        )
    return matches[0]


def locations(kind: str) -> list[Location]:
    """List the locations of a kind ("encoding", "extrapolation"), installed packages too."""
    return [
        *in_folder(FOLDERS[kind], f"tape_arith.models.{kind}s"),
        *installed(f"tape_arith.{kind}s"),
    ]


def known_names(kind: str) -> list[str]:
    """List all names of a kind, sorted."""
    return sorted({location.name for location in locations(kind)})


def declarations(kind: str) -> list[Declaration]:
    """List all declarations of a kind.

    A package's file that cannot be read gives a `problem`, so that it does not hide the others.
    """
    listed = []
    for location in sorted(locations(kind), key=lambda location: location.name):
        if location.is_builtin:
            listed.append(location.declaration())
            continue
        try:
            listed.append(locate(kind, location.name).declaration())
        except UsageError as error:
            listed.append(Declaration(location.name, package=location.package, problem=str(error)))
    return listed


def in_folder(folder: Path, module: str) -> list[Location]:
    """Make a location for each file of `folder`, the folder of package `module`."""
    files = (path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return [Location(normalized(path.stem), path, f"{module}.{path.stem}") for path in files]


@cache
def installed(group: str) -> tuple[Location, ...]:
    """Make a location for each entry point of `group`, as in `mine = "package.module:Class"`."""
    from importlib.metadata import entry_points  # 70 ms: not for --help

    named = (
        Location(
            normalized(point.name),
            source_file(point.module),
            point.module,
            point.attr or "",
            f"{point.dist.name} {point.dist.version}",
        )
        for point in entry_points(group=group)
        if point.dist is not None and point.dist.name  # a broken installation has no name
    )
    return tuple(dict.fromkeys(named))  # a package may stand on the path twice


def normalized(name: str) -> str:
    """Write `name` in small letters, with dashes for underscores."""
    return name.replace("_", "-").lower()


def source_file(module: str) -> Path | None:
    """Find the file of `module` without importing it or its packages; None if there is none."""
    outermost, *inner = module.split(".")
    try:
        spec = find_spec(outermost)
    except (ImportError, ValueError):  # ValueError: imported without a spec
        return None
    for name in inner:
        folders = spec and spec.submodule_search_locations
        spec = PathFinder.find_spec(name, folders) if folders else None
    origin = Path(spec.origin or "") if spec else Path()
    return origin if origin.suffix == ".py" and origin.is_file() else None


def describe_error(error: BaseException, *locations: Location) -> str:
    """Describe an error in one line, with the last line of `locations` that it passed."""
    files = {str(location.file) for location in locations}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    line = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + line


def _on_disk(path: str, class_name: str) -> Location:
    """Locate a file; a path below the current folder becomes relative, so that it has one name."""
    if not os.path.isfile(path):
        raise UsageError(f"'{path}': there is no such file, as seen from this folder")
    if not class_name:
        raise UsageError(f"'{path}': say which class of the file it is, as in {path}:Mine")
    file = Path(os.path.abspath(path))
    short = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return Location(f"{short.as_posix()}:{class_name}", file, class_name=class_name)


@cache
def _declaration(location: Location, source: bytes) -> Declaration:
    path = str(location) if location.is_builtin else str(location.file)
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise UsageError(f"{path} is not Python: {line}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        # ValueError: a null byte; the last two: nested deeper than the parser goes
        raise UsageError(f"{path} is not Python: {error}") from error
    public = {
        node.name: node
        for node in body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    if not public:
        raise UsageError(f"{path} defines no class for '{location.name}'")
    name = location.class_name or list(public)[-1]  # helpers stand above it
    if name not in public:
        raise UsageError(
            f"{path} defines no public class '{name}', only {', '.join(public)}: names and options "
            "are read from where the class is written"
        )
    facts: dict[str, str] = {}
    options: dict[str, Option] = {}
    for node in public[name].body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(value := _literal(node.value), str):
                facts |= {ast.unparse(target): value for target in targets}
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            options = {arg.arg: _option(arg.annotation, default) for arg, default in pairs}
    return Declaration(
        name=location.name,
        class_name=name,
        summary=(ast.get_docstring(public[name]) or "").split("\n")[0],
        kind=facts.get("kind", ""),
        paper=facts.get("paper", ""),
        options=options,
        package=location.package,
    )


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal expression; Ellipsis if it is none."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return ...


def _option(annotation: ast.expr | None, default: ast.expr | None) -> Option:
    written = ast.unparse(annotation) if annotation else "str"
    if default is None:
        return Option(written, None, "has no default, so that no name without it can be built")
    value = _literal(default)
    if isinstance(value, Value):
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


class _Loader(SourceLoader):
    """Loads the very bytes that are hashed.

    Bytecode is neither read nor written: two edits within a second can leave it stale.
    """

    def __init__(self, location: Location) -> None:
        self.file, self.source = str(location.file), location.source()

    def get_filename(self, fullname: str) -> str:
        return self.file

    def get_data(self, path: Any) -> bytes:
        return self.source


def _import_file(location: Location) -> ModuleType:
    """Import a file on disk, once for each content."""
    loader = _Loader(location)
    content = hashlib.sha256(loader.file.encode() + b"\0" + loader.source)
    name = f"tape_arith_file_{content.hexdigest()[:16]}"
    if name not in sys.modules:
        spec = spec_from_loader(name, loader)
        assert spec is not None
        module = module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and torch.compile look a class's module up there
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
