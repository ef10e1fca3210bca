"""Import the classes of a name, which may run a user's code."""

from functools import partial
from pkgutil import resolve_name
from typing import Any

from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import locate
from tape_arith.arith.registry.names import Name, NamePart, parse
from tape_arith.models.classes import Classes

_BASES = {
    "encoding": "tape_arith.models.encoding:PositionalEncoding",
    "extrapolation": "tape_arith.models.extrapolations.extrapolation:Extrapolation",
    "modifier": "tape_arith.models.encoding:PositionalEncoding",
}
"""The base class of each kind."""


def load_classes(name: Name | str) -> Classes:
    """Import the classes of a name, each with its options.

    Raises UsageError if one cannot be imported or does not derive from the base of its kind.
    """
    name = parse(name) if isinstance(name, str) else name
    parts = {part.name: _with_options("encoding", part) for part in name.encoding.parts}
    change = name.extrapolation
    return Classes(parts, None if change is None else _with_options("extrapolation", change))


def _with_options(kind: str, part: NamePart) -> partial[Any]:
    return partial(_load_class(kind, part.name), **dict(part.options))


def _load_class(kind: str, name: str) -> type:
    location, base = locate(kind, name), resolve_name(_BASES[kind])
    cls = getattr(location.load(), location.declaration().class_name, None)
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise UsageError(f"{location} is no {kind}: it must be a subclass of {base.__name__}")
    if location.modifier is None:
        return cls
    modifier = _load_class("modifier", location.modifier.name)
    return type(f"{modifier.__name__}{cls.__name__}", (modifier, cls), {})
