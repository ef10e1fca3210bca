"""The two kinds of error that the command line turns into one line, and the exit codes."""

from tape_arith.models.errors import UsageError as UsageError
from tape_arith.models.errors import unknown as unknown

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED = 0, 1, 2, 3, 75, 130
"""Partly: the time was up, or a part could not be done. Again is EX_TEMPFAIL, of what was preempted
or found somebody else at work: nothing is wrong, run me again. Interrupted: by a person."""


class Failure(Exception):
    """Something that was asked for rightly went wrong: a disk, a corrupt file (exit code 1)."""


class Corrupt(Failure):
    """A file that is not what was written: damaged, or a foreign one."""
