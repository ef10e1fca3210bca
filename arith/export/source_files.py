"""Collect the source files of an encoding, rewritten to work in one folder without this suite.

`transformers` copies only files that are imported with one dot, and follows no folders. So each
module becomes one file (`models.families.rotary` becomes `families_rotary.py`), and its imports of
`models` become imports with a dot. `parts.py` has the classes of a name's parts.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tape_arith.arith.errors import UsageError
from tape_arith.arith.export.folder import render
from tape_arith.arith.registry.locate import Location, known_names, locate, source_file
from tape_arith.arith.registry.names import Name, NamePart

_PACKAGE = "tape_arith.models."
_ALWAYS = ("combination", "decoder", "encoding", "sequences")
"""The modules that `templates/modeling_tape_arith.py.jinja` imports."""
_ALLOWED = {"torch", *sys.stdlib_module_names}
_IMPORT = re.compile(r"^(\s*)from tape_arith\.models\.([\w.]+) import ", re.MULTILINE)


def source_files(name: Name, version: str) -> dict[str, str]:
    """Return the text of each file that the encoding `name` and the decoder need, by file name.

    Raises UsageError if a user's encoding imports more than `models`, torch and Python's library.
    """
    parts = name.locations()
    waiting = [*map(_module, _ALWAYS), *parts]
    waiting += [part.modifier for part in parts if part.modifier is not None]
    origins: dict[str, Path | None] = {}
    files: dict[str, str] = {}
    while waiting:
        location = waiting.pop()
        file = f"{_flat(location)}.py"
        if origins.setdefault(file, location.file) != location.file:
            raise UsageError(f"two files are called {location}: rename one to export both")
        if file not in files:
            text = location.source().decode("utf-8")
            waiting += map(_module, _imports(location, text))
            head = f"# {location}, carried by `tape-arith export` ({version}).\n"
            files[file] = head + _IMPORT.sub(
                lambda match: f"{match[1]}from .{match[2].replace('.', '_')} import ", text
            )
    imports, classes = set[tuple[str, str]](), []
    for each in parts:
        class_name = _class_name(each)
        imports.add((_flat(each), class_name))
        if each.modifier is not None:
            modifier = _class_name(each.modifier)
            imports.add((_flat(each.modifier), modifier))
            class_name = f'type("{modifier}{class_name}", ({modifier}, {class_name}), {{}})'
        classes.append((each.name, class_name))
    files["parts.py"] = render(
        "classes.py", imports=sorted(imports), classes=sorted(classes), version=version
    )
    return files


def _class_name(location: Location) -> str:
    return replace(location, modifier=None).declaration().class_name


def involved(parts: Iterable[NamePart]) -> list[str]:
    """Return the names of `parts`, and of the encodings that their options name (DAPE's base)."""
    names: dict[str, None] = {}
    known = known_names("encoding")
    for part in parts:
        options = locate("encoding", part.name).declaration().options
        values = {key: option.default for key, option in options.items()} | dict(part.options)
        named = [str(value) for value in values.values() if value in known]
        names |= dict.fromkeys([part.name, *named])
    return list(names)


def _module(name: str) -> Location:
    """Locate a module of `models` ("families.rotary")."""
    file = source_file(_PACKAGE + name)
    if file is None or file.name == "__init__.py":
        raise UsageError(f"models.{name} is no module: an export cannot carry it")
    return Location(name, file, _PACKAGE + name)


def _flat(location: Location) -> str:
    """Return the name of its exported module ("families_rotary")."""
    if location.is_builtin:
        return location.module.removeprefix(_PACKAGE).replace(".", "_")
    return "own_" + re.sub(r"\W", "_", Path(location.file or location.name).stem)


def _imports(location: Location, text: str) -> Iterator[str]:
    """Yield the modules of `models` that a file imports. Raises UsageError for any other import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if isinstance(node, ast.ImportFrom) and name.startswith(_PACKAGE):
                yield name.removeprefix(_PACKAGE)
            elif name.split(".")[0] not in _ALLOWED:
                raise UsageError(
                    f"{location} imports {name}, which an export cannot carry: an encoding that is "
                    "exported imports `from tape_arith.models.x import y`, torch and what comes "
                    "with Python"
                )
