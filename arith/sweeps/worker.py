"""A job on the node that a cluster chose for it: runs its commands, passes signals on to them, and
keeps its ticket. As a program: `python -m ...sweeps.worker TASKS VARIABLE [AGAIN...]` does the
task of the file TASKS (a line of JSON each) whose number the environment's VARIABLE says.

It starts in a tenth of a second and listens from then on, long before its commands can: one that a
signal ends while it still loads torch has lost nothing, and counts as preempted.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_DONE, EXIT_FAILED
from tape_arith.arith.files import parse_json, read_text
from tape_arith.arith.runs.child_process import begin, last_line
from tape_arith.arith.stopping import hear
from tape_arith.arith.sweeps.tickets import State, Ticket, write_ticket

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_BEFORE_AGAIN = 10.0


@dataclass(frozen=True)
class Task:
    """One job, or several that follow each other: what comes after `tape-arith`, and on how many
    cores. `where` is the folder that they run in, on a file system that all nodes share; the log
    and the ticket beside it are left out where `log` is empty."""

    commands: list[list[str]]
    cores: int = 1
    where: str = "."
    log: str = ""
    engine: str = ""
    token: str = ""

    def line(self) -> str:
        """For a file of tasks; `read_task` reads it."""
        return json.dumps(asdict(self))


def read_task(file: Path, number: int) -> Task:
    """The task in that line of a file, from 0. Errors: Failure, ValueError."""
    return Task(**parse_json(read_text(file).splitlines()[number]))


class Worker:
    """Does tasks, one after another."""

    def __init__(self) -> None:
        self.wish: int | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Pass a signal on: it is a wish to stop in good order."""
        self.wish = self.wish or number
        if self.process is not None:
            self.process.send_signal(number)

    def perform(self, task: Task) -> tuple[int, str]:
        """The exit code of the first command that did not end well, or 0, and what it said last."""
        began, host = time.perf_counter(), socket.gethostname()
        host = os.environ.get("SLURMD_NODENAME", host)  # what Slurm calls it
        code, reason = EXIT_DONE, ""
        ticket = Ticket(task.engine, task.token, "running", host)
        _keep(task, ticket)
        try:
            for argv in task.commands:
                code = EXIT_AGAIN if self.wish is not None else self._run(argv, task)
                if code:
                    break
            reason = (last_line(Path(task.log)) if task.log else "") or f"ended with {code}"
        except OSError as error:
            code, reason = EXIT_FAILED, f"cannot start on {host}: {error}"
        if code < 0 and self.wish is not None:  # before it could listen
            code, reason = EXIT_AGAIN, "stopped before it began"
        state: State = "stopped" if code == EXIT_AGAIN and self.wish is not None else "ended"
        seconds = round(time.perf_counter() - began, 3)
        _keep(task, replace(ticket, state=state, code=code, reason=reason, seconds=seconds))
        return code, reason

    def _run(self, argv: list[str], task: Task) -> int:
        log = Path(task.log) if task.log else None
        share = {"OMP_NUM_THREADS": str(task.cores)}
        self.process = begin(argv, log, share, where=task.where)
        if self.wish is not None:  # it came in between
            self.process.send_signal(self.wish)
        while True:
            try:
                # In short waits: a wish may come from another thread, without a signal.
                return self.process.wait(SECONDS_BETWEEN_LOOKS)
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                self.note(signal.SIGTERM)


def _keep(task: Task, ticket: Ticket) -> None:
    if task.log:
        write_ticket(Path(task.log), ticket)


def main(arguments: list[str]) -> int:
    """The program. Where the job is to be run again and nobody cancelled it, the command AGAIN sees
    to it; without one whoever runs us does, after a pause."""
    worker = Worker()
    hear(worker.note)
    file, variable, *again = arguments
    task = read_task(Path(file), int(os.environ[variable]))
    code, reason = worker.perform(task)
    print(reason, file=sys.stderr, flush=True)
    if code == EXIT_AGAIN and worker.wish in (None, signal.SIGUSR2):
        if again:
            _keep(task, Ticket(task.engine, task.token))
            subprocess.run(again, check=False)
        elif worker.wish is None:  # another process is at work on the folder
            time.sleep(SECONDS_BEFORE_AGAIN)
    return code if code >= 0 else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
