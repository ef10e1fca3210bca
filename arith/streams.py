"""What a command says never ends it: its work is worth more. Data that cannot be written does.

No torch here.
"""

import io
import os
import stat
import sys
from contextlib import suppress
from typing import Any

STDOUT, STDERR = 1, 2


class Talk(io.FileIO):
    """Of a descriptor to which talk goes: what cannot be written is lost, as where the terminal or
    the reader of a pipe is gone, or the disk is full."""

    def write(self, data: Any, /) -> int:
        """How many bytes are dealt with."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """A stream that was closed (`>&-`) goes nowhere, a letter that an encoding lacks is written as
    a number, and talk is written where that can be done."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
            setattr(sys, name, nowhere)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    told = sys.stderr
    if isinstance(told, io.TextIOWrapper) and told.fileno() == STDERR:
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(Talk(STDERR, "w", closefd=False)),
            encoding=told.encoding,
            errors=told.errors,
            line_buffering=True,
        )


def hang_up() -> None:
    """The terminal is gone, and with it whoever reads a pipe there: what goes to stdout reaches a
    file or nobody, and that it cannot be written is no failure."""
    with suppress(OSError):
        if not stat.S_ISREG(os.fstat(STDOUT).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, STDOUT)
            os.close(nowhere)
