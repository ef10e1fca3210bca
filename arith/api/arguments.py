"""Check the arguments of the API as the command line checks its options, in the same words."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from tape_arith.arith.documents import MOST_INTEGER, must_be
from tape_arith.arith.errors import UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")

Seed = Annotated[int, Field(ge=0, le=MOST_INTEGER)]
AtLeastOne = Annotated[int, Field(ge=1)]
Workers = Annotated[int, Field(ge=0)]
Shots = Annotated[int, Field(ge=0, le=100)]
Problems = Annotated[int, Field(ge=1, le=10**12)]
Width = Annotated[float, Field(ge=2, le=20)]
Columns = Annotated[int, Field(ge=1, le=20)]
Percent = Annotated[float, Field(ge=1, le=100)]

_PLAIN = (int, float, bool, str, Path, NoneType, Any, Sequence, Mapping)
"""The types that are checked; others, such as grids, are taken as they are."""
_OPTIONS = {"extrapolation": "with", "form": "format"}
"""Options of commands that have another name than the argument."""


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make `function` raise UsageError for an argument that does not fit its annotation.

    Numbers of numpy are taken as Python's.
    """
    adapters = {
        name: TypeAdapter(parameter.annotation)
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD and _is_plain(parameter.annotation)
    }

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        bound = signature(function).bind(*args, **kwargs)
        for name in bound.arguments.keys() & adapters.keys():
            bound.arguments[name] = _checked(adapters[name], name, bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return call


def _is_plain(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    if kind is Annotated:
        return _is_plain(get_args(annotation)[0])
    inside = get_args(annotation)
    return kind in (*_PLAIN, UnionType, Union) and all(map(_is_plain, inside))


def _checked(adapter: TypeAdapter[Any], name: str, value: object) -> Any:
    try:
        return adapter.validate_python(_plain(value), strict=True)
    except ValidationError as error:
        option = _OPTIONS.get(name, name).replace("_", "-")
        raise UsageError(f"--{option} {must_be(error)}") from None


def _plain(value: Any) -> Any:
    """Return numbers and arrays of numpy, also in a list, as Python's own; a range as a list."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(each) for each in value]
    return value
