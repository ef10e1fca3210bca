"""The two kinds of error that the command line turns into one line, and the exit codes."""

from tape_arith.models.errors import UsageError as UsageError
from tape_arith.models.errors import unknown as unknown

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED = 0, 1, 2, 3, 75, 130
"""EXIT_PARTLY: the time limit came first, or a part failed. EXIT_AGAIN (EX_TEMPFAIL): preempted, or
another process holds the folder, so run the command again. EXIT_INTERRUPTED: Ctrl-C."""


class Failure(Exception):
    """A valid request failed, as for a full disk or a corrupt file (exit code 1)."""


class Corrupt(Failure):
    """A file is damaged, or tape-arith did not write it."""
