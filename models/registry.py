"""Where the class that a name stands for is written: in a folder of ours, in an installed package,
or in a file of the user's. A name is found, and its file read, without importing anything; `load`
alone runs what it finds.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from models.errors import UsageError

MOST_BYTES = 2**20
"""Of a file of Python source."""
RAISED: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Whatever somebody else's code may raise: let through, its sys.exit(0) would end the command as if
all had been done."""


@dataclass(frozen=True)
class Place:
    """Where a name is written: its file, which is None where it cannot be told without importing;
    its module, empty for a file that belongs to none; its class, empty where it is the last one of
    the file. `package` is the installed package that it comes from, and empty for what is ours."""

    name: str
    file: Path | None
    module: str = ""
    class_name: str = ""
    package: str = ""

    def __str__(self) -> str:
        """For people: who says that there is this name."""
        if self.package:
            return f"package {self.package} ({self.module})"
        assert self.file is not None
        return f"{self.module.replace('.', '/')}.py" if self.module else self.name

    @property
    def ours(self) -> bool:
        """Whether it is part of this suite, and changes with its version alone."""
        return bool(self.module) and not self.package

    def source(self) -> bytes:
        """What stands in the file. Errors: UsageError where it cannot be read."""
        if self.file is None:
            raise UsageError(
                f"'{self.name}' of {self}: no file of Python source is found for {self.module} "
                "without importing it, and names and options are read from that: install the "
                "package as plain files"
            )
        try:
            with open(self.file, "rb") as file:
                source = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read: {error.strerror or error}") from error
        if len(source) > MOST_BYTES:
            raise UsageError(f"{self.file} is larger than the {MOST_BYTES:,} bytes of a class")
        return source

    def sha256(self) -> str:
        """Hex hash of the file. Errors: UsageError where it cannot be read."""
        return hashlib.sha256(self.source()).hexdigest()

    def load(self) -> ModuleType:
        """Import it: from here on its author's code runs.

        Errors: UsageError where a file or package of the user's cannot be imported, with the line.
        """
        if self.ours:
            return import_module(self.module)
        try:
            return import_module(self.module) if self.module else _import_file(self)
        except UsageError:
            raise
        except RAISED as error:
            raise UsageError(f"{self} cannot be imported: {described(error, self)}") from error


def in_folder(folder: Path, module: str) -> list[Place]:
    """A name for each file of `folder`, whose files are `module.NAME`."""
    files = (path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return [Place(path.stem.replace("_", "-"), path, f"{module}.{path.stem}") for path in files]


@cache
def installed(group: str) -> tuple[Place, ...]:
    """A name for each entry point of `group` in the installed packages: `theirs = "module:Class"`.

    Of a package without a name, which a broken installation leaves behind, nothing is taken.
    """
    from importlib.metadata import entry_points  # 70 ms: not for --help

    found: dict[Place, None] = {}
    for point in entry_points(group=group):
        if point.dist is None or not point.dist.name:
            continue
        package = f"{point.dist.name} {point.dist.version}"
        place = Place(
            spelled(point.name), source_file(point.module), point.module, point.attr or "", package
        )
        found[place] = None  # a package may be found twice on the path
    return tuple(found)


def leading_file(text: str) -> str | None:
    """The path of a Python file that begins `text` and is followed by a colon, where such a file is
    there: whatever would join names otherwise (a comma, a plus, a colon) may be part of it."""
    paths = (text[: match.end()] for match in re.finditer(r"\.py(?=:)", text))
    return next(filter(os.path.isfile, paths), None)


def of_file(path: str, class_name: str) -> Place:
    """The class of a file on disk. It is named from the current folder, where the file is below
    it, and else by its whole path: `./mine.py:Mine` and `mine.py:Mine` are one."""
    whole = os.path.abspath(path)
    short = os.path.relpath(whole) if _is_below(whole, os.getcwd()) else whole
    return Place(f"{Path(short).as_posix()}:{class_name}", Path(whole), class_name=class_name)


def no_file(path: str) -> str:
    """What is wrong with a `path` that ends in .py and has no class after it."""
    if os.path.isfile(path):
        return f"say which class of the file it is, as in {path}:Mine"
    return "there is no such file, as seen from this folder"


def spelled(name: str) -> str:
    """A name as it is known: dashes for underscores, small letters."""
    return name.replace("_", "-").lower()


def matching(places: Iterable[Place], name: str) -> list[Place]:
    """Those that are called `name`, which may be spelled with underscores."""
    return [place for place in places if place.name == spelled(name)]


def only(kind: str, name: str, found: Sequence[Place]) -> Place:
    """The one of `found`, all called `name`. Errors: UsageError, naming them, where it is not one:
    a result must say what it is of."""
    if len(found) > 1:
        *others, last = map(str, found)
        raise UsageError(
            f"the {kind} '{name}' is of {', '.join(others)} and of {last}: one name cannot be two "
            "things, so rename or uninstall what is not tape-arith's own"
        )
    return found[0]


def described(error: BaseException, *places: Place) -> str:
    """An error of somebody else's code in one line, with the last line of his files on its way."""
    files = {str(place.file) for place in places}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + where


def _is_below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def source_file(module: str) -> Path | None:
    """The file of a module that is not imported, nor are the packages that it is in; None where
    it is not a plain file of Python source."""
    spec: ModuleSpec | None = None
    for spec in _specs(module):
        if spec is None:
            return None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    file = Path(spec.origin)
    return file if file.suffix == ".py" and file.is_file() else None


def _specs(module: str) -> Iterator[ModuleSpec | None]:
    """Of the outermost package, of the one in it, ..., of the module: find_spec of an inner name
    would import the outer ones."""
    outermost, *inner = module.split(".")
    try:
        spec = find_spec(outermost)
    except (ImportError, ValueError):  # ValueError: imported by hand, without a spec
        spec = None
    yield spec
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            yield None
            return
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
        yield spec


class _Loader(SourceLoader):
    """Loads the very bytes that were hashed. It never looks at bytecode, which two edits within a
    second can leave stale, and writes none beside a file that is not ours."""

    def __init__(self, place: Place) -> None:
        self.file, self.source = str(place.file), place.source()

    def get_filename(self, fullname: str) -> str:
        return self.file

    def get_data(self, path: Any) -> bytes:
        return self.source


def _import_file(place: Place) -> ModuleType:
    """The module of a file on disk as it is now, once."""
    loader = _Loader(place)
    content = loader.file.encode() + b"\0" + loader.source
    name = f"tape_arith_file_{hashlib.sha256(content).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = spec_from_loader(name, loader)
        assert spec is not None
        module = module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and the compiler look a class's module up there
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
