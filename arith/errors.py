"""The two kinds of error that the command line turns into one line and an exit code."""

from models.errors import UsageError, unknown

__all__ = ["Failure", "UsageError", "unknown"]


class Failure(Exception):
    """Something that was asked for rightly went wrong: a disk, a corrupt file (exit code 1)."""
