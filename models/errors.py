"""Errors that a person reads: one line that says what is wrong, what is right, and what to do."""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

USER_CODE_ERRORS: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Errors to catch around a user's code, whose sys.exit(0) must not look like success."""

_LONGEST = 80
"""Most letters of an unknown name that a message shows."""


class UsageError(ValueError):
    """A request that cannot be met as it was made (exit code 2)."""


class UndefinedEncoding(UsageError):
    """An encoding that is not defined for problems as the task writes them; says what it needs."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Make the error for a `name` that no `kind` ("encoding", "preset", ...) has.

    >>> str(unknown("encoding", "fier", ["rope", "fire"]))
    "unknown encoding 'fier': did you mean 'fire'? Known: fire, rope"
    """
    names = sorted(known)
    beginnings = [each for each in names if name and each.startswith(name)]
    near = get_close_matches(name[:_LONGEST], names, n=1) or beginnings
    hint = f"did you mean '{near[0]}'? " if near else ""
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return UsageError(f"unknown {kind} {shown!r}: {hint}Known: {', '.join(names) or 'none'}")


def describe_error(error: BaseException, *files: Path | None) -> str:
    """Describe an error in one line, with the innermost line of `files` in its traceback."""
    names = set(map(str, files))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in names]
    line = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + line
