"""The source files that an encoding needs, made to stand in one folder without this suite.

`transformers` takes along, of a model's own code, the files that lie beside it and are imported
with one dot; folders it does not follow. So every module of ours goes into one file beside the
others, `models.families.rotary` into `families_rotary.py`, and its imports of `models` become
imports with a dot. Nothing else of a file is touched. What looks names up in folders stays behind:
`parts.py`, written here, knows the classes of a name, and `build.py`, in the place of
`models.build`, those that its parts build themselves.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tape_arith.arith.errors import UsageError
from tape_arith.models.names.declarations import declaration, read_declaration
from tape_arith.models.names.locate import Location, known_names, locate, source_file
from tape_arith.models.names.parse import Name, NamePart

ALWAYS = (
    "tape_arith.models.decoder",
    "tape_arith.models.encoding",
    "tape_arith.models.sequences",
    "tape_arith.models.combination",
)
"""What `templates/modeling_tape_arith.py.txt` itself imports."""
BUILD = "tape_arith.models.build"
LOOKS_INTO_FOLDERS = (
    "tape_arith.models.names.parse",
    "tape_arith.models.names.locate",
    "tape_arith.models.names.declarations",
)
ALLOWED = {"torch", *sys.stdlib_module_names}
_IMPORT = re.compile(r"^(\s*)from tape_arith\.models\.([\w.]+) import ", re.MULTILINE)


@dataclass(frozen=True)
class _Module:
    """A file to be carried: its name here, where it comes from and what stands in it."""

    flat: str
    origin: str
    text: str


def carried(name: Name, version: str) -> dict[str, str]:
    """The files by their names ("families_rotary.py") that the encoding `name` and the decoder
    need, those written here among them.

    Errors: UsageError where an encoding of the user's own needs more than its file, `models` and
    torch.
    """
    own = [part.name for part in name.encoding.parts]
    extra = [] if name.extrapolation is None else [name.extrapolation.name]
    parts = [*_classes("encoding", own), *_classes("extrapolation", extra)]
    others = [other for other in involved(name.encoding.parts) if other not in own]
    built = _classes("encoding", others)
    waiting = [_ours(module) for module in ALWAYS]
    waiting += [_placed(place) for _, place, _ in (*parts, *built)]
    modules: dict[str, _Module] = {}
    while waiting:
        module = waiting.pop()
        if modules.get(module.flat, module).text != module.text:
            raise UsageError(f"two files are called {module.origin}: rename one to export both")
        if module.flat not in modules:
            modules[module.flat] = module
            waiting += [_ours(other) for other in _imported(module) if other != BUILD]
    files = {f"{flat}.py": _standing_alone(module, version) for flat, module in modules.items()}
    # Two files, since transformers before 5 looks for ever through imports that go in a circle.
    return {**files, "parts.py": _table(parts, version), "build.py": _table(built, version)}


def involved(parts: Iterable[NamePart]) -> list[str]:
    """The names of `parts`, and of the encodings that options of theirs name (DAPE's base)."""
    found: list[str] = []
    known = known_names("encoding")
    for part in parts:
        declared = declaration("encoding", part.name).options
        values = {key: option.default for key, option in declared.items()} | dict(part.options)
        found += [
            part.name,
            *(str(v) for v in values.values() if isinstance(v, str) and v in known),
        ]
    return list(dict.fromkeys(found))


def _classes(kind: str, names: Iterable[str]) -> list[tuple[str, Location, str]]:
    """Each name with where it is written and what its class is called."""
    places = [locate(kind, name) for name in names]
    return [(place.name, place, read_declaration(place).class_name) for place in places]


def _ours(module: str) -> _Module:
    file = source_file(module)
    if file is None or file.name == "__init__.py" or module in LOOKS_INTO_FOLDERS:
        raise UsageError(f"{module} looks into folders of tape-arith: an export cannot carry it")
    return _Module(
        _flat(module),
        f"{module.removeprefix('tape_arith.').replace('.', '/')}.py",
        file.read_text("utf-8"),
    )


def _placed(place: Location) -> _Module:
    if place.is_builtin:
        return _ours(place.module)
    assert place.file is not None  # `source.read` said so where it is not
    stem = re.sub(r"\W", "_", Path(place.file).stem)
    return _Module(f"own_{stem}", Path(place.file).name, place.source().decode("utf-8"))


def _flat(module: str) -> str:
    return module.removeprefix("tape_arith.models.").replace(".", "_")


def _imported(module: _Module) -> Iterator[str]:
    """The modules of `models` that it imports. Errors: UsageError for what cannot come along."""
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
            elif name.split(".")[0] not in ALLOWED:
                raise UsageError(
                    f"{module.origin} imports {name}, which an export cannot carry: an encoding "
                    "that is exported imports `from tape_arith.models.x import y`, torch and what "
                    "comes with Python"
                )


def _standing_alone(module: _Module, version: str) -> str:
    text = _IMPORT.sub(lambda found: f"{found[1]}from .{_flat(found[2])} import ", module.text)
    return f"# {module.origin}, carried by `tape-arith export` ({version}).\n{text}"


def _table(classes: Iterable[tuple[str, Location, str]], version: str) -> str:
    """A file that builds the classes (name, place, class) that are given, by name."""
    listed = sorted(classes)
    head = [
        f'"""What this folder builds by name. Written by `tape-arith export` ({version})."""',
        "",
        "from typing import Any",
        "",
        *(f"from .{_placed(place).flat} import {class_name}" for _, place, class_name in listed),
        "",
        "CLASSES: dict[str, Any] = {",
        *(f'    "{name}": {class_name},' for name, _, class_name in listed),
        "}",
        "",
        "",
        "def build(name: str, *arguments: Any, **options: Any) -> Any:",
        '    """An encoding (of a setting) or an extrapolation, by its name."""',
        "    return CLASSES[name](*arguments, **options)",
        "",
    ]
    return "\n".join(head)
