"""Errors for people: one line that says what is wrong, what is right, and what to do."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_LONGEST = 80
"""Most letters of an unknown name that a message shows."""

_MOST = 12
"""Most known names that are listed beside one that was probably meant."""


class UsageError(ValueError):
    """A request that cannot be met (exit code 2)."""


class UndefinedEncoding(UsageError):
    """An encoding that is not defined for problems as the task writes them."""


def unknown(kind: str, name: str, known: Iterable[str], meant: Sequence[str] = ()) -> UsageError:
    """Make the error for a `name` that is none of a `kind` ("encoding", "preset", ...).

    meant  the known names that others call so

    >>> str(unknown("encoding", "fier", ["rope", "fire"]))
    "unknown encoding 'fier': did you mean 'fire'? Known: fire, rope"
    """
    names = sorted(known)
    beginnings = [each for each in names if name and each.startswith(name)]
    near = meant or (get_close_matches(name[:_LONGEST], names, n=1) or beginnings)[:1]
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    listed = "" if near and len(names) > _MOST else f"Known: {', '.join(names) or 'none'}"
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return UsageError(f"unknown {kind} {shown!r}: {hint}{listed}".strip())
