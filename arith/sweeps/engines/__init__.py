"""Where jobs run: an engine starts what it is given and says how it ended. It decides nothing: what
is ready, what is done and what is tried again is for `tape_arith.arith.sweeps.scheduler`.

The folder is the registry: a file is an engine, its name the one after --engine, and the
keyword-only arguments of its last class are its options.
"""

import re
from pathlib import Path

from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.sweeps.engines.engine import Engine
from tape_arith.models.names.declarations import read_declaration
from tape_arith.models.names.locate import Location, in_folder, matching
from tape_arith.models.names.parse import NamePart

LOCAL = "local"
_NOT_BY_NAME = ("engine", "in-process")


def names() -> list[str]:
    """The engines, as after --engine."""
    return sorted(place.name for place in _places())


def parse(text: str) -> NamePart:
    """The engine that `text` names: `name[:key=value...]`; a value may hold colons.

    >>> str(parse("slurm:time=24:00:00:partition=gpu"))
    'slurm:partition=gpu:time=24:00:00'

    Errors: UsageError.
    """
    name, *settings = re.split(r":(?=\w+=)", text.strip())
    found = matching(_places(), name)
    if not found:
        raise unknown("engine", name, names())
    declared = read_declaration(found[0]).options
    chosen = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in declared:
            raise unknown(f"option of {found[0].name}", key, declared)
        if key in chosen:
            raise UsageError(f"'{text}' gives {key} twice")
        try:
            chosen[key] = declared[key].read(value)
        except ValueError as error:
            raise UsageError(f"'{text}': {key} must be {error}, not '{value}'") from None
    return NamePart(found[0].name, tuple(sorted(chosen.items())))


def elsewhere(text: str, slots: int | None, folder: Path) -> Engine | None:
    """The engine that `text` names, for up to `slots` jobs at a time (None: no bound), with logs
    and tickets in `folder`; None for this machine, where slots are shares of it.

    Errors: UsageError where what it needs is not here.
    """
    part = parse(text)
    if part.name == LOCAL:
        return None
    (place,) = matching(_places(), part.name)
    kind = getattr(place.load(), read_declaration(place).class_name)
    reason = kind.lacks()
    if reason is not None:
        raise UsageError(f"engine {part.name}: {reason}")
    engine: Engine = kind(slots, folder, **dict(part.options))
    return engine


def _places() -> list[Location]:
    found = in_folder(Path(__file__).parent, __name__)
    return [place for place in found if place.name not in _NOT_BY_NAME]
