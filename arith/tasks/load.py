"""Load a task by name: built in, in an installed package, or FILE.py:CLASS."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, cast

from tape_arith.arith.errors import USER_CODE_ERRORS, Failure, UsageError, describe_error
from tape_arith.arith.registry.declarations import Value
from tape_arith.arith.registry.locate import (
    Location,
    known_names,
    locate,
    normalized,
    on_disk,
    split_modifier,
)
from tape_arith.arith.registry.names import parse_task, task_location
from tape_arith.arith.tasks.task import Task

_FAMILIES = "TwoOperands, OneString, ListOfNumbers or TextTask (arith/tasks/README.md)"


@contextmanager
def task_errors(name: str) -> Iterator[None]:
    """Turn errors in the code of a user's task into a Failure that names the line."""
    try:
        yield
    except USER_CODE_ERRORS as error:
        place = task_location(name)
        if place.is_builtin or isinstance(error, UsageError | Failure | OSError):
            raise
        raise Failure(
            f"task {name} failed: {describe_error(error, place.file)[:500]}; "
            f"`tape-arith check {name}` looks into it"
        ) from error


def is_task(text: str) -> bool:
    """Tell whether a name is a task's, not an encoding's. Runs the file of FILE.py:CLASS.

    Raises UsageError if the file cannot be imported or has no such class.
    """
    name, _, class_name = text.partition(":")
    if not name.endswith(".py"):
        return normalized(name) in known_names("task")
    if "+" in text or "@" in text or split_modifier(text)[0]:  # an encoding
        return False
    place = on_disk(name, class_name.partition(":")[0])
    place.declaration()
    leaf = getattr(place.load(), place.class_name, None)
    return isinstance(leaf, type) and issubclass(leaf, Task)


def task_hash(text: str) -> dict[str, str]:
    """Return the SHA-256 of a task's file, by the task's name; {} if it is built in.

    From this call on `load_task` loads a changed file again, so no task changes during a run.
    Raises UsageError if no task has this name or its file cannot be read.
    """
    place = task_location(text)
    if place.is_builtin:
        return {}
    sha256 = place.sha256()
    if _loaded.get(place.name, (place, sha256)) != (place, sha256):
        load_task.cache_clear()
    return {place.name: sha256}


_loaded: dict[str, tuple[Location, str]] = {}
"""File and SHA-256 of each loaded task that is not built in, by name."""


@lru_cache
def load_task(text: str) -> Task[Any]:
    """Return the task of this name, with its options.

    Raises UsageError if no task has this name (with the nearest name), if two have it, if an option
    is wrong, or if the file or package does not define exactly one task.
    """
    part = parse_task(text)
    place = locate("task", part.name)
    if not place.is_builtin:
        _loaded[place.name] = place, place.sha256()
    module = place.load()
    leaves = [
        value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Task)
        and (key == place.class_name if place.class_name else value.__module__ == module.__name__)
    ]
    if len(leaves) != 1:
        if place.class_name:
            raise UsageError(f"{place} is no task: derive it from a family, as from {_FAMILIES}")
        raise UsageError(f"{place} must define exactly one task, not {len(leaves)}")
    options: dict[str, Value] = dict(part.options)
    try:
        _check_defined(place, sorted(leaves[0].__abstractmethods__))
        task: Task[Any] = cast(Any, leaves[0])(**options)
        task.name = str(part)
        _check_defined(place, [name for name in _declared(task) if not hasattr(task, name)])
        task.text(task.example)  # finds a missing symbol or method before training
    except UsageError as error:
        prefix = "" if str(error).startswith("task ") else f"task {part}: "
        raise UsageError(f"{prefix}{error}") from error
    except USER_CODE_ERRORS as error:
        raise UsageError(f"{place}: task {part}: {describe_error(error, place.file)}") from error
    return task


def _declared(task: Task[Any]) -> list[str]:
    """Return the attributes that a task and its families declare."""
    declared = (vars(base).get("__annotations__", ()) for base in type(task).__mro__)
    return list(dict.fromkeys(chain(*declared)))


def _check_defined(place: Location, lacking: Sequence[str]) -> None:
    """Raise UsageError if the class at `place` is `lacking` attributes or methods of a task."""
    if lacking:
        raise UsageError(f"task {place} lacks {', '.join(lacking)}: define that in its class")
