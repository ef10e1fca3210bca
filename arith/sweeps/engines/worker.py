"""Run a job in a process of its own: start its command, read its last message, keep its state.

A worker runs on a node of a cluster, passes signals on, and writes the job's state.

`python -m tape_arith.arith.sweeps.engines.worker LOGS VARIABLE AGAIN...` is the worker's program.
The environment's VARIABLE is the number, from 0, of a line in the file LOGS, the path of a job's
log. The program runs this job, and calls the command AGAIN if the job must run again. It handles
signals 0.2 s after its start, long before the job can. A job that is stopped while it loads torch
has lost nothing and counts as preempted. Never imports torch.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal

from tape_arith.arith.documents import Strict, validated
from tape_arith.arith.errors import EXIT_AGAIN, EXIT_FAILED, Failure
from tape_arith.arith.files import append_line, open_file, parse_json, read_text, write_text
from tape_arith.arith.stopping import PREEMPTION, install_handler

SECONDS_BETWEEN_LOOKS = 0.2
COMMAND_LINE = ("-P", "-m", "tape_arith")
"""-P keeps the working folder off the path, because a user's file may have a module's name."""
_LAST_BYTES = 10_000  # the end of a log that holds its last line
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


@dataclass(frozen=True)
class JobState(Strict):
    """A job's state: a small file, written by the process that handles the job at the moment.

    token            identifies this submission of the job
    argv, cores      the command line after `tape-arith`, and its number of cores
    directory        the working folder, on a file system that all nodes share
    state            "stopped": asked to stop, and a cluster may run it again; "ended" and "failed"
                     are final. Whether the job is done, only the files of its run tell
    """

    engine: str = ""
    token: str = ""
    argv: tuple[str, ...] = ()
    cores: int = 1
    directory: str = ""
    state: Literal["queued", "running", "stopped", "ended", "failed"] = "queued"
    host: str = ""
    code: int = 0
    reason: str = ""

    @property
    def is_final(self) -> bool:
        return self.state in ("ended", "failed")

    def __str__(self) -> str:
        """Format engine, state and host for people."""
        host = f" on {self.host}" if self.host and self.state == "running" else ""
        return f"{self.engine}: {self.state}{host}"


def state_file(log: Path) -> Path:
    """Return the path of the state file of the job with this log."""
    return log.parent.parent / "states" / f"{log.stem}.json"


def write_state(log: Path, state: JobState) -> None:
    """Write the state of the job with this log. Raises Failure."""
    write_text(state_file(log), json.dumps(asdict(state)) + "\n")


def read_state(log: Path) -> JobState | None:
    """Read the state of the job with this log; None if it is missing or unreadable."""
    try:
        return validated(parse_json(read_text(state_file(log))), JobState)
    except (Failure, ValueError):
        return None


class Worker:
    """Runs one job, given by the state file of the job's log."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def pass_on(self, number: int, frame: FrameType | None = None) -> None:
        """Pass a signal on to the job, which then saves and stops."""
        self.signal = self.signal or number
        if self.process is not None:
            self.process.send_signal(number)

    def perform(self, log: Path) -> tuple[int, str]:
        """Run the job with this log; return its exit code and its last message."""
        host = os.environ.get("SLURMD_NODENAME", socket.gethostname())  # as Slurm calls it
        state = read_state(log)
        if state is None:
            return EXIT_FAILED, f"{host} does not see {state_file(log)}: nodes must share it"
        state = replace(state, state="running", host=host)
        write_state(log, state)
        try:
            code = EXIT_AGAIN if self.signal is not None else self._run(state, log)
        except (OSError, Failure) as error:
            code, reason = EXIT_FAILED, f"cannot start on {host}: {error}"
        else:
            message = last_line(log)
            reason = message or f"ended with {code}"
            if code < 0 and self.signal is not None:
                # A job without a message was killed before it could handle the signal.
                killed = f"killed by signal {-code} after it was asked to stop"
                code, reason = EXIT_AGAIN, killed if message else "stopped before it began"
        stopped = code == EXIT_AGAIN and self.signal is not None
        state = replace(state, code=code, reason=reason, state="stopped" if stopped else "ended")
        write_state(log, state)
        return code, reason

    def _run(self, state: JobState, log: Path) -> int:
        share = {"OMP_NUM_THREADS": str(state.cores)}
        self.process = start_command(state.argv, log, share, directory=state.directory)
        if self.signal is not None:  # it arrived while the command started
            self.process.send_signal(self.signal)
        while True:
            try:
                # Waits are short, because another thread may call `pass_on` without a signal.
                return self.process.wait(SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                self.pass_on(signal.SIGTERM)


def start_command(
    argv: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    directory: str | None = None,
    own_session: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start `tape-arith argv` in `directory`; `environment` adds to our own variables.

    Appends its output to `log`. It never outlives this process. With `own_session`, a Ctrl-C in our
    terminal does not reach it. Raises OSError.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    append_line(log, f"$ tape-arith {' '.join(argv)}")
    with open(log, "ab", buffering=0) as file:
        return subprocess.Popen(
            [sys.executable, *COMMAND_LINE, *argv],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=directory,
            start_new_session=own_session,
            preexec_fn=_die_with_parent if _LIBC else None,
        )


def last_line(log: Path) -> str:
    """Return the last message in a command's log, without the prefix "tape-arith: ".

    Returns "" if there is no message or the log cannot be read.
    """
    try:
        with open_file(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
    except (OSError, Failure):
        return ""
    line = lines[-1] if lines else ""
    return "" if line.startswith("$ ") else line.removeprefix("tape-arith: ")


# Only Linux ends children with their parent. Opened here, because nothing may be loaded between
# fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    assert _LIBC is not None
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """Run a job; requeue it if it was preempted or its folder was locked."""
    worker = Worker()
    install_handler(worker.pass_on)
    file, variable, *again = arguments
    log = Path(read_text(Path(file)).splitlines()[int(os.environ[variable])])
    code, reason = worker.perform(log)
    print(reason, file=sys.stderr, flush=True)
    state = read_state(log)
    if state and code == EXIT_AGAIN and worker.signal in (None, PREEMPTION):
        write_state(log, replace(state, state="queued"))
        subprocess.run(again, check=False)
    return code if code >= 0 else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
