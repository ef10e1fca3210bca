"""The two kinds of error that the command line prints as one line, and the exit codes."""

import errno
import re
import traceback
from pathlib import Path

from tape_arith.models.errors import UsageError as UsageError
from tape_arith.models.errors import unknown as unknown

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED = 0, 1, 2, 3, 75, 130
"""EXIT_PARTLY: stopped by the time limit, or a part failed. EXIT_AGAIN (EX_TEMPFAIL): preempted, or
another process holds the folder; run the command again. EXIT_INTERRUPTED: Ctrl-C."""


USER_CODE_ERRORS: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Errors to catch around a user's code; its sys.exit(0) must not look like success."""


_OUT_OF_MEMORY = re.compile(
    "allocate memory|not enough memory|out of memory|bad_alloc"  # torch on a CPU, CUDA, C++
    "|could not (create|execute) a primitive(?! desc)|could not create a memory object"  # oneDNN
    "|ALLOC_FAILED|MemoryAllocation|aoti_torch_empty_strided"  # libraries of a GPU, compiled graphs
    "|can't start new thread|unable to mmap|failed to map segment"  # its stack; files and libraries
)
"""Parts of the messages of failed allocations."""


class Failure(Exception):
    """A valid request failed, for example by a full disk or a corrupt file (exit code 1)."""


class Corrupt(Failure):
    """A file is damaged, or tape-arith did not write it.

    fault   what is wrong with it, without the `remedy`, which is for whoever made the file
    """

    def __init__(self, fault: str, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, [fault, remedy])))
        self.fault = fault


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed, on any device, also while a library was loaded."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    has_message = isinstance(error, RuntimeError | ImportError | OSError)
    return has_message and _OUT_OF_MEMORY.search(str(error)) is not None


def describe_error(error: BaseException, *files: Path | None) -> str:
    """Describe an error in one line, with the innermost line of `files` in its traceback."""
    names = set(map(str, files))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in names]
    line = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + line
