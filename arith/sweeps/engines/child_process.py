"""A `tape-arith` in a process of its own: start it, read its last message. No torch here."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tape_arith.arith.files import open_file

COMMAND_LINE = ("-P", "-m", "tape_arith")
"""Without the working folder on the path, where a user's file may have the name of one of ours."""
_LAST_BYTES = 10_000  # of a log, in which its last line is looked for
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def start_command(
    argv: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    directory: str | None = None,
    own_session: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start `tape-arith argv` in `directory`, with `environment` on top of ours.

    Its output is appended to `log`. It never outlives this process; in its own session, a Ctrl-C
    in our terminal does not reach it. Raises OSError.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab", buffering=0) as file:
        try:
            file.write(f"$ tape-arith {' '.join(argv)}\n".encode())
        except OSError as error:  # of a descriptor: the system does not name the file
            raise OSError(error.errno, error.strerror, str(log)) from None
        return subprocess.Popen(
            [sys.executable, *COMMAND_LINE, *argv],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=directory,
            start_new_session=own_session,
            preexec_fn=_die_with_parent,
        )


def last_line(log: Path) -> str:
    """The last message of a command in its log, without the name of the command before it."""
    with open_file(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
    line = lines[-1] if lines else ""
    return "" if line.startswith("$ ") else line.removeprefix("tape-arith: ")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM)


_LIBC = ctypes.CDLL(None)  # opened here: between fork and exec nothing may be loaded
