"""Import the classes of a name, which may run a user's code."""

from functools import partial
from pkgutil import resolve_name
from typing import Any

from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.declarations import MODEL
from tape_arith.arith.registry.locate import locate
from tape_arith.arith.registry.names import Name, NamePart, is_model, parse
from tape_arith.models.classes import Classes

_BASES = {
    "encoding": "tape_arith.models.encoding:PositionalEncoding",
    "model": "torch.nn:Module",
    "extrapolation": "tape_arith.models.extrapolations.extrapolation:Extrapolation",
    "modifier": "tape_arith.models.encoding:PositionalEncoding",
}
"""The base class of each kind."""


def load_classes(name: Name | str) -> Classes:
    """Import the classes of a name, each with its options.

    Raises UsageError if one cannot be imported or does not derive from the base of its kind, or if
    a model is joined with something.
    """
    name = parse(name) if isinstance(name, str) else name
    if is_model(name.encoding):
        part, *more = filter(None, [*name.encoding.parts, name.extrapolation])
        if more:
            raise UsageError(f"{name}: nothing can be joined to a model with a plus")
        return Classes({}, model=_with_options("model", part))
    parts = {part.name: _with_options("encoding", part) for part in name.encoding.parts}
    change = name.extrapolation
    return Classes(parts, None if change is None else _with_options("extrapolation", change))


def _with_options(kind: str, part: NamePart) -> partial[Any]:
    return partial(_load_class(kind, part.name), **dict(part.options))


def _load_class(kind: str, name: str) -> type:
    location, base = locate(kind, name), resolve_name(_BASES[kind])
    cls = getattr(location.load(), location.declaration().class_name, None)
    if not isinstance(cls, type) or not issubclass(cls, base):
        model = f", or say that its kind is '{MODEL}'" if kind == "encoding" else ""
        raise UsageError(
            f"{location} is no {kind}: it must be a subclass of {base.__name__}{model}"
        )
    if location.modifier is None:
        return cls
    modifier = _load_class("modifier", location.modifier.name)
    return type(f"{modifier.__name__}{cls.__name__}", (modifier, cls), {})
