"""Parse what a file's class declares (options, summary, paper), without running the file."""

import ast
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from math import isfinite
from pathlib import Path

from tape_arith.models.errors import UsageError

Value = str | int | float | bool | None
_ROOT = Path(__file__).parents[2]
_WITH_KINDS = tuple(
    f"tape_arith.models.{name}." for name in ("encodings", "families", "extrapolations")
)
"""Modules whose classes declare a kind."""
MODEL = "other model"
"""The kind of a torch.nn.Module that stands in the place of decoder and encoding."""


@dataclass(frozen=True)
class Option:
    """A keyword-only argument: its annotation as written and its default.

    problem  why it cannot be set, if not empty
    meaning  its line in the table of the class's docstring, `name  meaning`
    """

    annotation: str
    default: Value
    problem: str = ""
    meaning: str = ""

    @property
    def choices(self) -> dict[str, Value]:
        """The accepted values by their text; empty if it is a free number or text."""
        kind = self.annotation.split(" |")[0]
        accepted = "[True, False]" if kind == "bool" else kind.removeprefix("Literal")
        if self.problem or not accepted.startswith("["):
            return {}
        return {value_text(choice): choice for choice in ast.literal_eval(accepted)}

    def read(self, text: str) -> Value:
        """Convert `text` to a value. Raises ValueError with the accepted values as its text."""
        kind = self.annotation.split(" |")[0]
        if choices := self.choices:
            if text not in choices:
                raise ValueError(f"one of {', '.join(choices)}")
            return choices[text]
        try:
            if kind == "int":
                return int(text)
            if kind == "float" and isfinite(number := float(text)):
                return number
        except ValueError:
            pass
        if kind in ("int", "float"):
            raise ValueError("a whole number" if kind == "int" else "a number")
        return text


@dataclass(frozen=True)
class Declaration:
    """The facts that a file declares.

    label        name in figures, by default that of the class
    description  docstring of the class without its table of options; `summary` is its first line
    problem      why the facts cannot be used, if not empty
    told_by      the option that follows the longest tested length unless it is given
    chance       share of a task's problems that the best guess gets right
    needs_positions  whether a task's answer depends on the order of the tokens
    """

    name: str
    class_name: str = ""
    label: str = ""
    summary: str = ""
    kind: str = ""
    paper: str = ""
    options: dict[str, Option] = field(default_factory=dict)
    package: str = ""
    problem: str = ""
    description: str = ""
    told_by: str = ""
    chance: float = 0.0
    needs_positions: bool = True


@cache
def read_declaration(
    source: bytes, path: str, name: str, class_name: str = "", package: str = ""
) -> Declaration:
    """Parse a class in `source`, the content of the file at `path`; by default the last public one.

    What the class does not declare is inherited from bases in the same file. Only `kind` is also
    inherited from encodings of this suite and their families; that of a torch.nn.Module is MODEL.

    Raises UsageError if the source is not Python or has no such public class.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # ValueError: a null byte; the last two: nested too deep for the parser
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{path} is not Python: {line}{reason}") from error
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    public = [name for name in classes if not name.startswith("_")]
    if not public:
        raise UsageError(f"{path} defines no class for '{name}'")
    class_name = class_name or public[-1]  # helpers are defined above it
    if class_name not in public:
        raise UsageError(
            f"{path} defines no public class '{class_name}', only {', '.join(public)}: names and "
            "options are read from where the class is written"
        )
    attributes, options = dict[str, object](), dict[str, Option]()
    meanings, description = dict[str, str](), ""
    lineage = _with_bases(class_name, classes)
    for node in reversed(lineage):
        attributes |= plain_attributes(node)
        options = options if (own := _options(node)) is None else own
        description, table = _split_table(ast.get_docstring(node) or "", options)
        meanings |= table
    facts = {key: value for key, value in attributes.items() if isinstance(value, str)}
    chance = attributes.get("chance")
    options = {name: replace(o, meaning=meanings.get(name, "")) for name, o in options.items()}
    return Declaration(
        name=name,
        class_name=class_name,
        label=facts.get("label") or class_name,
        summary=description.split("\n")[0],
        description=description,
        chance=chance if isinstance(chance, float) else 0.0,
        needs_positions=attributes.get("needs_positions") is not False,
        kind=facts.get("kind") or _inherited_kind(lineage, body),
        paper=facts.get("paper", ""),
        told_by=facts.get("told_by", ""),
        options=options,
        package=package,
    )


def modified(own: Declaration, modifier: Declaration) -> Declaration:
    """Declare a modified encoding. Raises UsageError if encoding and modifier share an option, or
    for a model."""
    if own.kind == MODEL:
        raise UsageError(
            f"{own.name}: {own.class_name} is a model, not an encoding: leave {modifier.name}- out"
        )
    if both := own.options.keys() & modifier.options.keys():
        raise UsageError(
            f"{own.name}: {own.class_name} and {modifier.name} both have an option {min(both)}: "
            f"rename that of {own.class_name}"
        )
    return replace(
        own,
        label=f"{modifier.label} {own.label}",
        summary=f"{own.class_name}: {modifier.summary[0].lower()}{modifier.summary[1:]}",
        description=f"{modifier.description}\n\n{own.class_name}: {own.description}",
        # A modifier scales indices, but the encoding still knows where digits are.
        kind=own.kind if own.kind == "task-structured" else modifier.kind,
        paper="; ".join(filter(None, [modifier.paper, own.paper])),
        options=modifier.options | own.options,
    )


def _with_bases(name: str, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and those of its bases that the file defines, nearest first."""
    lineage: list[ast.ClassDef] = []
    names = [name]
    while names:
        node = classes.get(names.pop(0))
        if node is not None and node not in lineage:
            lineage.append(node)
            names = [*map(ast.unparse, node.bases), *names]
    return lineage


def _inherited_kind(lineage: list[ast.ClassDef], body: list[ast.stmt]) -> str:
    """Return the kind of the first base from this suite's encodings or families, or from torch."""
    imported = _imported_names(body)
    for base in (ast.unparse(base) for node in lineage for base in node.bases):
        first, *rest = base.split(".")
        path = ".".join([imported.get(first, ""), *rest])
        if path == "torch.nn.Module":
            return MODEL
        module, _, class_name = path.rpartition(".")
        file = _ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
        if module.startswith(_WITH_KINDS) and file.is_file():
            with suppress(UsageError):  # no such class
                if kind := read_declaration(file.read_bytes(), str(file), base, class_name).kind:
                    return kind
    return ""


def _imported_names(body: list[ast.stmt]) -> dict[str, str]:
    """Return what each imported name stands for, with dots: a module, or a class of a module."""
    names: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            outermost = {one.name.partition(".")[0] for one in node.names if not one.asname}
            names |= {name: name for name in outermost}
            names |= {one.asname: one.name for one in node.names if one.asname}
    return names


def _options(node: ast.ClassDef) -> dict[str, Option] | None:
    """Return the keyword-only arguments of a class's own `__init__`; None if it has none."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            pairs = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
            return {arg.arg: _option(arg.annotation, default) for arg, default in pairs}
    return None


def _split_table(docstring: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring from its table, the paragraph of lines `name  meaning`: text, meanings."""
    paragraphs, meanings = [], dict[str, str]()
    for paragraph in docstring.split("\n\n"):
        name, gap, _ = paragraph.partition("  ")
        if not gap or name not in names:
            paragraphs.append(paragraph)
            continue
        for line in paragraph.splitlines():
            name, gap, meaning = line.partition("  ")
            if gap and name:
                meanings[name] = meaning.strip()
            else:  # a continued line
                meanings[next(reversed(meanings))] += f" {line.strip()}"
    return "\n\n".join(paragraphs), meanings


def _option(annotation: ast.expr | None, default: ast.expr | None) -> Option:
    written = ast.unparse(annotation) if annotation else "str"
    if default is None:
        return Option(written, None, "has no default: give it one, so that every name can be built")
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError):
        value = ...
    if not isinstance(value, Value):
        problem = (
            f"has the default `{ast.unparse(default)}`, which is read without running the file: "
            "write it as a plain number, text, True, False or None"
        )
        return Option(written, None, problem)
    if not _is_known(written):
        problem = (
            f"has the type `{written}`, which is read without running the file: write it as int, "
            "float, str, bool or Literal[...], with ` | None` behind it where None is a value"
        )
        return Option(written, value, problem)
    return Option(written, value)


def _is_known(annotation: str) -> bool:
    known = re.fullmatch(r"(?:int|float|str|bool|Literal(\[.+\]))(?: \| None)?", annotation)
    try:
        return known is not None and bool(ast.literal_eval(known[1] or "True"))
    except (ValueError, TypeError):  # choices that are not plain
        return False


def plain_attributes(node: ast.ClassDef) -> dict[str, object]:
    """Return the attributes in the body of a class whose values are plain text or numbers."""
    plain: dict[str, object] = {}
    for line in node.body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(line.value, ast.Constant):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            plain |= {ast.unparse(target): line.value.value for target in targets}
    return plain


def value_text(value: Value) -> str:
    """Format the value of an option as in a name."""
    if isinstance(value, bool):
        return str(value).lower()
    # All digits are kept, so that no two values share a name; a plus would start another part.
    return str(value).removesuffix(".0").replace("e+", "e")
