"""The source files that an encoding needs, rewritten to work in one folder without this suite.

`transformers` copies only files that are imported with one dot, and follows no folders. So each
module becomes one file (`models.families.rotary` becomes `families_rotary.py`), and its imports of
`models` become imports with a dot. Modules that look names up in folders are replaced: `parts.py`
has the classes of a name, and `build.py`, in place of `models.build`, those that its parts build.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tape_arith.arith.errors import UsageError
from tape_arith.models.names.locate import Location, known_names, locate, source_file
from tape_arith.models.names.parse import Name, NamePart

_ALWAYS = (
    "tape_arith.models.decoder",
    "tape_arith.models.encoding",
    "tape_arith.models.sequences",
)
"""The imports of `templates/modeling_tape_arith.py.txt`."""
_BUILD = "tape_arith.models.build"
_LOOKS_INTO_FOLDERS = (
    "tape_arith.models.names.parse",
    "tape_arith.models.names.locate",
)
_ALLOWED = {"torch", *sys.stdlib_module_names}
_IMPORT = re.compile(r"^(\s*)from tape_arith\.models\.([\w.]+) import ", re.MULTILINE)


@dataclass(frozen=True)
class _Module:
    """A file to export: its new name, its origin and its text."""

    flat: str
    origin: str
    text: str


def source_files(name: Name, version: str) -> dict[str, str]:
    """Return the text of each file ("families_rotary.py") that the encoding `name` and the decoder
    need, with `parts.py` and `build.py`.

    Raises UsageError if a user's encoding needs more than its file, `models` and torch.
    """
    encodings = [part.name for part in name.encoding.parts]
    extrapolations = [] if name.extrapolation is None else [name.extrapolation.name]
    parts = [*_classes("encoding", encodings), *_classes("extrapolation", extrapolations)]
    nested = [inner for inner in involved(name.encoding.parts) if inner not in encodings]
    built = _classes("encoding", nested)
    waiting = [_builtin(module) for module in _ALWAYS]
    waiting += [_module(location) for _, location, _ in (*parts, *built)]
    modules: dict[str, _Module] = {}
    while waiting:
        module = waiting.pop()
        if modules.get(module.flat, module).text != module.text:
            raise UsageError(f"two files are called {module.origin}: rename one to export both")
        if module.flat not in modules:
            modules[module.flat] = module
            waiting += [_builtin(needed) for needed in _imported(module) if needed != _BUILD]
    files = {f"{flat}.py": _standing_alone(module, version) for flat, module in modules.items()}
    # Two files, because transformers before 5 never ends on circular imports.
    return {**files, "parts.py": _table(parts, version), "build.py": _table(built, version)}


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


def _classes(kind: str, names: Iterable[str]) -> list[tuple[str, Location, str]]:
    """Return each name with its location and the name of its class."""
    located = [locate(kind, name) for name in names]
    return [(one.name, one, one.declaration().class_name) for one in located]


def _builtin(module: str) -> _Module:
    file = source_file(module)
    if file is None or file.name == "__init__.py" or module in _LOOKS_INTO_FOLDERS:
        raise UsageError(f"{module} looks into folders of tape-arith: an export cannot carry it")
    return _Module(
        _flat(module),
        f"{module.removeprefix('tape_arith.').replace('.', '/')}.py",
        file.read_text("utf-8"),
    )


def _module(location: Location) -> _Module:
    if location.is_builtin:
        return _builtin(location.module)
    assert location.file is not None  # `declaration` fails for a location without a file
    file = Path(location.file)
    stem = re.sub(r"\W", "_", file.stem)
    return _Module(f"own_{stem}", file.name, location.source().decode("utf-8"))


def _flat(module: str) -> str:
    return module.removeprefix("tape_arith.models.").replace(".", "_")


def _imported(module: _Module) -> Iterator[str]:
    """Yield the modules of `models` that it imports. Raises UsageError for any other import."""
    for node in ast.walk(ast.parse(module.text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        else:
            continue
        for name in names:
            if isinstance(node, ast.ImportFrom) and name.startswith("tape_arith.models."):
                yield name
            elif name.split(".")[0] not in _ALLOWED:
                raise UsageError(
                    f"{module.origin} imports {name}, which an export cannot carry: an encoding "
                    "that is exported imports `from tape_arith.models.x import y`, torch and what "
                    "comes with Python"
                )


def _standing_alone(module: _Module, version: str) -> str:
    text = _IMPORT.sub(lambda match: f"{match[1]}from .{_flat(match[2])} import ", module.text)
    return f"# {module.origin}, carried by `tape-arith export` ({version}).\n{text}"


def _table(classes: Iterable[tuple[str, Location, str]], version: str) -> str:
    """Write a module that builds `classes` (name, location, class name) by name."""
    listed = sorted(classes)
    head = [
        f'"""Classes built by name. Written by `tape-arith export` ({version})."""',
        "",
        "from typing import Any",
        "",
        *(f"from .{_module(one).flat} import {class_name}" for _, one, class_name in listed),
        "",
        "CLASSES: dict[str, Any] = {",
        *(f'    "{name}": {class_name},' for name, _, class_name in listed),
        "}",
        "",
        "",
        "def build(name: str, *arguments: Any, **options: Any) -> Any:",
        '    """Build an encoding (of a setting) or an extrapolation by its name."""',
        "    return CLASSES[name](*arguments, **options)",
        "",
    ]
    return "\n".join(head)
