"""The tasks there are, by name: built in, of an installed package, or FILE.py:CLASS.

A task is one file of this folder, named like the value of --task, or an entry point of the group
`tape_arith.tasks`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, cast

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.tasks.task import Task
from tape_arith.models.declarations import Declaration, Value
from tape_arith.models.errors import USER_CODE_ERRORS, describe_error
from tape_arith.models.locate import (
    Location,
    declared,
    in_folder,
    installed,
    normalized,
    on_disk,
    select,
    split_modifier,
)
from tape_arith.models.names import NamePart, read_part

_TASKS = Path(__file__).parent
_NOT_TASKS = {"task", "registry"}
"""The files of this folder that define none."""
_FAMILIES = "TwoOperands, OneString or ListOfNumbers"


@contextmanager
def task_errors(name: str) -> Iterator[None]:
    """Turn errors of the code of a task that is not built in into a Failure that names the line."""
    try:
        yield
    except USER_CODE_ERRORS as error:
        place = locate_task(parse_task(name).name)
        if place.is_builtin or isinstance(error, UsageError | Failure | OSError):
            raise
        raise Failure(
            f"task {name} failed: {describe_error(error, place.file)[:500]}; "
            f"`tape-arith check {name}` looks into it"
        ) from error


def task_places() -> list[Location]:
    """Return where tasks are defined, in this folder and installed packages, importing none."""
    files = in_folder(_TASKS, "tape_arith.arith.tasks")
    return [
        *(place for place in files if place.name not in _NOT_TASKS),
        *installed("tape_arith.tasks"),
    ]


def task_declarations() -> list[Declaration]:
    """Return what each task declares, by name, importing none."""
    return declared(task_places(), locate_task)


def tasks() -> list[str]:
    """Return the names of all tasks, importing none."""
    return sorted({place.name for place in task_places()})


def locate_task(name: str) -> Location:
    """Locate a task by name or FILE.py:CLASS. Raises UsageError unless exactly one matches."""
    path, _, class_name = name.partition(":")
    if path.endswith(".py"):
        return on_disk(path, class_name)
    return select("task", task_places(), name)


def is_builtin(text: str) -> bool:
    """Tell whether a task belongs to this suite.

    Any other is a user's code, which a name in somebody's results must not run. Raises UsageError
    if no task has this name.
    """
    return locate_task(parse_task(text).name).is_builtin


def task_declaration(text: str) -> Declaration:
    """Return what a task declares, importing nothing. Raises UsageError as `parse_task`."""
    return locate_task(parse_task(text).name).declaration()


def is_task(text: str) -> bool:
    """Tell whether a name is a task's, not an encoding's. Of FILE.py:CLASS, it runs the file.

    Raises UsageError if the file cannot be imported or has no such class.
    """
    name, _, class_name = text.partition(":")
    if not name.endswith(".py"):
        return normalized(name) in tasks()
    if "+" in text or "@" in text or split_modifier(text)[0]:  # an encoding
        return False
    place = on_disk(name, class_name.partition(":")[0])
    place.declaration()
    leaf = getattr(place.load(), place.class_name, None)
    return isinstance(leaf, type) and issubclass(leaf, Task)


def parse_task(text: str) -> NamePart:
    """Parse the name of a task with its options; options at their defaults are dropped.

    Raises UsageError if the task or an option is unknown.

    >>> str(parse_task("addition:spaces=0:order=plain"))
    'addition:order=plain'
    """
    return read_part(text, locate_task)


def task_hash(text: str) -> dict[str, str]:
    """Return the SHA-256 of a task's file by its name; {} if it is built in.

    A file that has changed is loaded again from now on: it does not change in the middle of a run.
    Raises UsageError if no task has this name or its file cannot be read.
    """
    place = locate_task(parse_task(text).name)
    if place.is_builtin:
        return {}
    sha256 = place.sha256()
    if _loaded.get(place.name, (place, sha256)) != (place, sha256):
        load_task.cache_clear()
    return {place.name: sha256}


_loaded: dict[str, tuple[Location, str]] = {}
"""The file and its SHA-256 of each task of `load_task` that is not built in, by name."""


@lru_cache
def load_task(text: str) -> Task[Any]:
    """Return the task of this name, with its options.

    Raises UsageError if no task has this name (it suggests the nearest), if two have it, if an
    option is wrong, or if the file or package does not define exactly one task.
    """
    part = parse_task(text)
    place = locate_task(part.name)
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
        task.text(task.example)  # a missing symbol or method is known before training
    except UsageError as error:
        prefix = "" if str(error).startswith("task ") else f"task {part}: "
        raise UsageError(f"{prefix}{error}") from error
    except USER_CODE_ERRORS as error:
        raise UsageError(f"{place}: task {part}: {describe_error(error, place.file)}") from error
    return task


def _declared(task: Task[Any]) -> list[str]:
    """Return the attributes that a task and its families are declared to have."""
    declared = (vars(base).get("__annotations__", ()) for base in type(task).__mro__)
    return list(dict.fromkeys(chain(*declared)))


def _check_defined(place: Location, lacking: Sequence[str]) -> None:
    """Raise UsageError if the class at `place` lacks anything that a task has."""
    if lacking:
        raise UsageError(f"task {place} lacks {', '.join(lacking)}: define that in its class")
