"""A job on the node that a cluster chose for it: runs its command, passes signals on, and keeps
the file that says where the job is.

As a program, `python -m tape_arith.arith.sweeps.engines.worker LOGS VARIABLE AGAIN...` does the job
whose log is in the line of the file LOGS whose number is in the environment's VARIABLE, and calls
AGAIN if the job is to be run again. It starts in 0.2 s and handles signals from then on, long
before the command can: a job that is stopped while it still loads torch has lost nothing, and
counts as preempted. No torch here.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_FAILED, Failure
from tape_arith.arith.files import Strict, parse_json, read_text, validated, write_text
from tape_arith.arith.stopping import install_handler
from tape_arith.arith.sweeps.engines.child_process import last_line, start_command

SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class JobState(Strict):
    """The state of a job in the hands of an engine: a small file, written by its present holder.

    token            names this submission of the job
    argv, cores      the job for another machine: what follows `tape-arith`, on how many cores
    directory        where it runs, on a file system that all nodes share
    state            "stopped" was asked to stop, and a cluster may run it again; "ended" and
                     "failed" are final; whether the job is done its own files say
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
        """Say for people where the job is."""
        host = f" on {self.host}" if self.host and self.state == "running" else ""
        return f"{self.engine}: {self.state}{host}"


def state_file(log: Path) -> Path:
    """Return the file of the state of the job that has this log."""
    return log.parent.parent / "states" / f"{log.stem}.json"


def write_state(log: Path, state: JobState) -> None:
    """Write the state of the job that has this log. Raises Failure."""
    write_text(state_file(log), json.dumps(asdict(state)) + "\n")


def read_state(log: Path) -> JobState | None:
    """Read the state of the job that has this log; None if there is none that can be read."""
    try:
        return validated(parse_json(read_text(state_file(log))), JobState)
    except (Failure, ValueError):
        return None


class Worker:
    """Does one job, handed over as the state beside its log."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def pass_on(self, number: int, frame: FrameType | None = None) -> None:
        """Send a signal to the job: it asks it to stop in good order."""
        self.signal = self.signal or number
        if self.process is not None:
            self.process.send_signal(number)

    def perform(self, log: Path) -> tuple[int, str]:
        """Return the exit code of the job and its last message."""
        host = os.environ.get("SLURMD_NODENAME", socket.gethostname())  # as Slurm calls it
        state = read_state(log)
        if state is None:
            return EXIT_FAILED, f"{host} does not see {state_file(log)}: nodes must share it"
        state = replace(state, state="running", host=host)
        write_state(log, state)
        try:
            code = EXIT_AGAIN if self.signal is not None else self._run(state, log)
            reason = last_line(log) or f"ended with {code}"
        except OSError as error:
            code, reason = EXIT_FAILED, f"cannot start on {host}: {error}"
        if code < 0 and self.signal is not None:  # before it could handle signals
            code, reason = EXIT_AGAIN, "stopped before it began"
        stopped = code == EXIT_AGAIN and self.signal is not None
        state = replace(state, code=code, reason=reason, state="stopped" if stopped else "ended")
        write_state(log, state)
        return code, reason

    def _run(self, state: JobState, log: Path) -> int:
        share = {"OMP_NUM_THREADS": str(state.cores)}
        self.process = start_command(state.argv, log, share, directory=state.directory)
        if self.signal is not None:  # it came in between
            self.process.send_signal(self.signal)
        while True:
            try:
                # In short waits: another thread may call `pass_on`, without a signal.
                return self.process.wait(SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                self.pass_on(signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """Do a job; one that was preempted, or found its folder locked, is run again."""
    worker = Worker()
    install_handler(worker.pass_on)
    file, variable, *again = arguments
    log = Path(read_text(Path(file)).splitlines()[int(os.environ[variable])])
    code, reason = worker.perform(log)
    print(reason, file=sys.stderr, flush=True)
    state = read_state(log)
    if state and code == EXIT_AGAIN and worker.signal in (None, signal.SIGUSR2):
        write_state(log, replace(state, state="queued"))
        subprocess.run(again, check=False)
    return code if code >= 0 else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
