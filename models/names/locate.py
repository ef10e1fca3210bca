"""Find and load the file that a name stands for.

A name is a file of models/encodings (or models/extrapolations), an entry point of an installed
package, or `FILE.py:CLASS` on disk. Only `Location.load` imports anything.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from tape_arith.models.errors import UsageError, unknown

FOLDERS = {kind: Path(__file__).parents[1] / f"{kind}s" for kind in ("encoding", "extrapolation")}
_MAX_BYTES = 2**20
USER_CODE_ERRORS: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Errors to catch around a user's code; a sys.exit(0) in it must not look like success."""


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
        """Whether the file belongs to this suite, so that the suite's version identifies it."""
        return bool(self.module) and not self.package

    def source(self) -> bytes:
        """Read the file. Raises UsageError if that fails or the file is too large."""
        if self.file is None:
            raise UsageError(
                f"'{self.name}' of {self}: no file of Python source is found for {self.module} "
                "without importing it, and names and options are read from that: install the "
                "package as plain files"
            )
        try:
            with open(self.file, "rb") as file:
                source = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read: {error.strerror or error}") from error
        if len(source) > _MAX_BYTES:
            raise UsageError(f"{self.file} is larger than the {_MAX_BYTES:,} bytes of a class")
        return source

    def sha256(self) -> str:
        """Hash the file. Raises UsageError if it cannot be read."""
        return hashlib.sha256(self.source()).hexdigest()

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


def locations(kind: str) -> list[Location]:
    """List the locations of a kind ("encoding", "extrapolation"), installed packages too."""
    return [
        *in_folder(FOLDERS[kind], f"tape_arith.models.{kind}s"),
        *installed(f"tape_arith.{kind}s"),
    ]


def known_names(kind: str) -> list[str]:
    """List all names of a kind, sorted."""
    return sorted({location.name for location in locations(kind)})


def locate(kind: str, name: str) -> Location:
    """Find a name or `FILE.py:CLASS`.

    Raises UsageError if there is no such name or file, or if several packages have the name.
    """
    path, _, class_name = name.partition(":")
    if kind == "encoding" and path.endswith(".py"):
        return _on_disk(path, class_name)
    matches = matching(locations(kind), name)
    if not matches:
        raise unknown(kind, name, known_names(kind))
    return single(kind, name, matches)


def in_folder(folder: Path, module: str) -> list[Location]:
    """Make a location for each file of `folder`, the folder of package `module`."""
    files = (path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return [Location(path.stem.replace("_", "-"), path, f"{module}.{path.stem}") for path in files]


@cache
def installed(group: str) -> tuple[Location, ...]:
    """Make a location for each entry point of `group`, as in `mine = "package.module:Class"`."""
    from importlib.metadata import entry_points  # 70 ms: not for --help

    by_location = {  # by location, since a package may stand on the path twice
        Location(
            normalized(point.name),
            source_file(point.module),
            point.module,
            point.attr or "",
            f"{point.dist.name} {point.dist.version}",
        ): None
        for point in entry_points(group=group)
        if point.dist is not None and point.dist.name  # a broken installation has no name
    }
    return tuple(by_location)


def normalized(name: str) -> str:
    """Write `name` in small letters, with dashes for underscores."""
    return name.replace("_", "-").lower()


def matching(locations: Iterable[Location], name: str) -> list[Location]:
    return [location for location in locations if location.name == normalized(name)]


def single(kind: str, name: str, matches: Sequence[Location]) -> Location:
    """Return the only one of `matches`. Raises UsageError, naming all, if there are several."""
    if len(matches) > 1:
        *first, last = map(str, matches)
        raise UsageError(
            f"the {kind} '{name}' is of {', '.join(first)} and of {last}: one name cannot be two "
            "things, so rename or uninstall what is not tape-arith's own"
        )
    return matches[0]


def describe_error(error: BaseException, *locations: Location) -> str:
    """Describe an error in one line, with the last line of `locations` that it passed."""
    files = {str(location.file) for location in locations}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    line = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + line


def source_file(module: str) -> Path | None:
    """Find the file of `module` without importing it or its packages; None if there is none."""
    outermost, *inner = module.split(".")
    try:
        spec = find_spec(outermost)
    except (ImportError, ValueError):  # ValueError: imported without a spec
        spec = None
    if spec is None:
        return None
    if inner:
        roots = [Path(root, *inner) for root in spec.submodule_search_locations or ()]
        files = [file for root in roots for file in (root.with_suffix(".py"), root / "__init__.py")]
    else:
        files = [Path(spec.origin or "")]
    return next((file for file in files if file.suffix == ".py" and file.is_file()), None)


def _on_disk(path: str, class_name: str) -> Location:
    """Locate a file; a path below the current folder becomes relative, so that it has one name."""
    if not os.path.isfile(path):
        raise UsageError(f"'{path}': there is no such file, as seen from this folder")
    if not class_name:
        raise UsageError(f"'{path}': say which class of the file it is, as in {path}:Mine")
    file = Path(os.path.abspath(path))
    short = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return Location(f"{short.as_posix()}:{class_name}", file, class_name=class_name)


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
