"""Find the file of a name.

A name refers to a file in a folder (encodings, models, tasks, engines), a class in
models/extrapolations/ or models/modifiers.py, an entry point of a package, or `FILE.py:CLASS`. A
modifier's name precedes an encoding's (`aug-rope`); a model's stands where an encoding's would.
Only `Location.load` runs code; listing never runs a user's code.
"""

import ast
import hashlib
import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from tape_arith.arith.errors import USER_CODE_ERRORS, describe_error
from tape_arith.arith.registry.declarations import (
    Declaration,
    modified,
    plain_attributes,
    read_declaration,
)
from tape_arith.models.errors import UsageError, unknown

KINDS = ("encoding", "extrapolation", "modifier")

_ROOT = Path(__file__).parents[2]
_FILES = {
    "encoding": "models/encodings/[!_]*.py",
    "model": "models/others/[!_]*.py",
    "extrapolation": "models/extrapolations/[!_]*.py",
    "modifier": "models/modifiers.py",
    "task": "arith/tasks/[!_]*.py",
    "engine": "arith/sweeps/engines/[!_]*.py",
}
_NAMED_CLASSES = ("extrapolation", "modifier")
"""Kinds whose names are those of classes; of the others, each file has its own."""
_OTHER_FILES = {"task": ("task", "load"), "engine": ("worker",)}
"""Files in these folders that define no task or engine."""
_ON_DISK = ("encoding", "model", "task")
"""Kinds that may be defined by a user's file."""


def folder(kind: str) -> Path:
    """Return the folder of a kind's files."""
    return _ROOT.joinpath(_FILES[kind]).parent


@dataclass(frozen=True)
class Location:
    """The file, module and class of a name.

    file        None if it cannot be found without importing a package
    module      empty for a file on disk
    class_name  empty for the last public class of the file
    package     name and version of the installed package; empty for this suite and for files
    modifier    location of the modifier before the name, if any
    """

    name: str
    file: Path | None
    module: str = ""
    class_name: str = ""
    package: str = ""
    modifier: "Location | None" = None

    def __str__(self) -> str:
        if self.package:
            return f"package {self.package} ({self.module})"
        path = self.module.removeprefix("tape_arith.").replace(".", "/")
        return f"{path}.py" if path else split_modifier(self.name)[1]

    @property
    def is_builtin(self) -> bool:
        """Tell whether the file belongs to this suite; its version then identifies the content."""
        return bool(self.module) and not self.package

    def source(self) -> bytes:
        """Read the file. Raises UsageError if that fails."""
        if self.file is None:
            raise UsageError(
                f"'{self.name}' of {self}: no file of Python source is found for {self.module} "
                "without importing it, and options are read from the source: install the package "
                "as plain files"
            )
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read: {error.strerror or error}") from error

    def sha256(self) -> str:
        """Hash the file. Raises UsageError if it cannot be read."""
        return hashlib.sha256(self.source()).hexdigest()

    def declaration(self) -> Declaration:
        """Parse the file. Raises UsageError if it is not Python or has no such public class."""
        path = str(self) if self.is_builtin else str(self.file)
        own = read_declaration(self.source(), path, self.name, self.class_name, self.package)
        return own if self.modifier is None else modified(own, self.modifier.declaration())

    def load(self) -> ModuleType:
        """Import the file, which runs its code. Raises UsageError if a user's file fails."""
        if self.is_builtin:
            return import_module(self.module)
        try:
            return import_module(self.module) if self.module else _import_file(self)
        except UsageError:
            raise
        except USER_CODE_ERRORS as error:
            message = f"{self} cannot be imported: {describe_error(error, self.file)}"
            raise UsageError(message) from error


def locate(kind: str, name: str) -> Location:
    """Locate a name or `FILE.py:CLASS`. Raises UsageError unless exactly one matches.

    The name of a model is found as an encoding too.
    """
    modifier, base = split_modifier(name)
    if kind == "encoding" and modifier:
        located = locate(kind, base)
        full = f"{modifier}-{located.name}"
        return replace(located, name=full, modifier=locate("modifier", modifier))
    path, _, class_name = name.partition(":")
    if kind in _ON_DISK and path.endswith(".py"):
        return on_disk(path, class_name)
    if kind == "encoding" and normalized(name) in known_names("model"):
        kind = "model"
    matches = [location for location in locations(kind) if location.name == normalized(name)]
    if not matches:
        known = trainable_names() if kind == "encoding" else known_names(kind)
        # It may be the word for a kind of encodings, as "rotary".
        of_kind = [each.name for each in declarations(kind) if name and each.kind == name.lower()]
        raise unknown(kind, name, known, of_kind)
    if len(matches) > 1:
        *first, last = map(str, matches)
        raise UsageError(
            f"the {kind} '{name}' is of {', '.join(first)} and of {last}: rename or uninstall the "
            "one that is not tape-arith's own"
        )
    return matches[0]


@cache
def locations(kind: str) -> tuple[Location, ...]:
    """List all locations of a kind, other packages included; encodings without modifiers."""
    builtin, (place, _, pattern) = list[Location](), _FILES[kind].rpartition("/")
    package = f"tape_arith.{place.replace('/', '.')}"
    for file in folder(kind).glob(pattern):
        name, module = normalized(file.stem), f"{package}.{file.stem}"
        if kind in _NAMED_CLASSES:
            builtin += _named_classes(file, module)
        elif name not in _OTHER_FILES.get(kind, ()):
            builtin.append(Location(name, file, module))
    return (*builtin, *_installed(f"tape_arith.{kind}s"))


@cache
def _named_classes(file: Path, module: str) -> list[Location]:
    """Return the classes of a file that have a `name`, by these names."""
    locations = []
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and (name := plain_attributes(node).get("name")):
            locations.append(Location(str(name), file, module, node.name))
    return locations


def split_modifier(name: str) -> tuple[str, str]:
    """Split the name of an encoding into its modifier ("" if none) and the rest.

    >>> split_modifier("aug-rope"), split_modifier("rope")
    (('aug', 'rope'), ('', 'rope'))
    """
    # A file or an encoding whose full name begins with a modifier's takes precedence.
    if not os.path.isfile(name.partition(":")[0]) and normalized(name) not in trainable_names():
        for modifier in known_names("modifier"):
            if normalized(name).startswith(f"{modifier}-"):
                return modifier, name[len(modifier) + 1 :]
    return "", name


def is_encoding(name: str) -> bool:
    """Tell whether an encoding or a model has this name, modifier or not; ignores files."""
    return normalized(split_modifier(name)[1]) in trainable_names()


def trainable_names() -> list[str]:
    """List all names that can be trained: those of encodings, then those of models."""
    return [*known_names("encoding"), *known_names("model")]


def known_names(kind: str) -> list[str]:
    """List all names of a kind, sorted."""
    return sorted({location.name for location in locations(kind)})


def declarations(kind: str) -> list[Declaration]:
    """List all declarations of a kind, sorted by name.

    A package's file that cannot be read is listed with a `problem`, so that the rest is listed.
    """
    declared = []
    for location in sorted(locations(kind), key=lambda location: location.name):
        name = location.name
        try:
            declared.append((location if location.is_builtin else locate(kind, name)).declaration())
        except UsageError as error:
            if location.is_builtin:
                raise
            declared.append(Declaration(name, package=location.package, problem=str(error)))
    return declared


def _installed(group: str) -> tuple[Location, ...]:
    """List the locations of the entry points in `group`, as in `mine = "package.module:Class"`."""
    from importlib.metadata import entry_points  # takes 70 ms, too long for --help

    places = (
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
    return tuple(dict.fromkeys(places))  # a package may be on the path twice


def normalized(name: str) -> str:
    """Return `name` in lowercase, with dashes for underscores."""
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


def on_disk(path: str, class_name: str) -> Location:
    """Locate a file; paths below the current folder become relative, so a file has one name."""
    if not os.path.isfile(path):
        raise UsageError(f"'{path}': there is no such file, as seen from this folder")
    if not class_name:
        raise UsageError(f"'{path}': say which class of the file it is, as in {path}:Mine")
    file = Path(os.path.abspath(path))
    short = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return Location(f"{short.as_posix()}:{class_name}", file, class_name=class_name)


class _Loader(SourceLoader):
    """Loads exactly the bytes that are hashed.

    Neither reads nor writes bytecode, which two edits within a second can leave stale.
    """

    def __init__(self, location: Location) -> None:
        self.file, self.source = str(location.file), location.source()

    def get_filename(self, fullname: str) -> str:
        return self.file

    def get_data(self, path: Any) -> bytes:
        return self.source


def _import_file(location: Location) -> ModuleType:
    """Import a file on disk, once per content."""
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
