"""Errors that a person reads: one line that says what is wrong, what is right, and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 80
"""Letters of an unknown name that are shown."""


class UsageError(ValueError):
    """A request that cannot be met as it was made (exit code 2)."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Make the error for a `name` that no `kind` ("encoding", "preset", ...) has.

    >>> str(unknown("encoding", "fier", ["rope", "fire"]))
    "unknown encoding 'fier': did you mean 'fire'? Known: fire, rope"
    """
    names = sorted(known)
    near = get_close_matches(name[:_LONGEST], names, n=1, cutoff=0.3)
    hint = f"did you mean '{near[0]}'? " if near else ""
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return UsageError(f"unknown {kind} '{shown}': {hint}Known: {', '.join(names) or 'none'}")


def check_least(name: str, least: int, **options: float | None) -> None:
    """Raises UsageError if an option of `name` is set to less than `least`."""
    for option, value in options.items():
        if value is not None and value < least:
            raise UsageError(f"{name}: {option} must be {least} or more, not {value:g}")
