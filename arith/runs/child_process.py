"""A `tape-arith` of its own: how it is started, and what it said last. No torch here."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tape_arith.arith.files import open_file

COMMAND_LINE = ("-P", "-m", "tape_arith")
"""Without the working folder on the path, where a file of the user's may be called like ours."""
_LAST_BYTES = 10_000  # of a log, in which its last line is looked for
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def begin(
    argv: Sequence[str],
    log: Path | None,
    environment: Mapping[str, str],
    *,
    where: str | None = None,
    apart: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start it in the folder `where`, with what it says at the end of `log` (None: where ours goes)
    and `environment` on top of ours. It never outlives us. `apart`: a Ctrl-C in our terminal does
    not reach it. Errors: OSError."""
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    with open(log or os.devnull, "ab", buffering=0) as file:
        try:
            file.write(f"$ tape-arith {' '.join(argv)}\n".encode())
        except OSError as error:  # of a descriptor: the system does not say which file it is
            raise OSError(error.errno, error.strerror, str(log)) from None
        return subprocess.Popen(
            [sys.executable, *COMMAND_LINE, *argv],
            stdin=subprocess.DEVNULL,
            stdout=None if log is None else file,
            stderr=None if log is None else subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=where,
            start_new_session=apart,
            preexec_fn=_die_with_parent,
        )


def last_line(log: Path) -> str:
    """What a job said last, without the name of the command before it."""
    with open_file(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
    said = lines[-1] if lines else ""
    return "" if said.startswith("$ ") else said.removeprefix("tape-arith: ")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM)


_LIBC = ctypes.CDLL(None)  # opened here: between fork and exec nothing may be loaded
