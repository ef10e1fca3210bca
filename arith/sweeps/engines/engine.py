"""What an engine is: four words, so that those of clusters fit beside the local one."""

from pathlib import Path
from typing import NamedTuple, Protocol

from tape_arith.arith.sweeps.jobs import Job, log_file
from tape_arith.arith.sweeps.tickets import Ticket, write_ticket
from tape_arith.arith.sweeps.worker import Task

NO_BOUND = 1_000_000
"""More jobs than anybody sends."""


class Ended(NamedTuple):
    """How a job ended: its exit code (0 done, 1 failed, 2 usage, 3 the time was up, 75 run me
    again), what it said last, its log if it has one, and how long it took."""

    job: Job
    code: int
    reason: str = ""
    log: Path | None = None
    seconds: float = 0.0


class Engine(Protocol):
    """Runs jobs at the same time, none of which waits for another."""

    @property
    def free(self) -> int:
        """How many more jobs it takes now."""
        ...

    def submit(self, job: Job, seconds: float | None) -> None:
        """Start `job`, which is to stop in good order after `seconds`."""
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that ended since the last call; waits up to so long for one."""
        ...

    def stop(self) -> None:
        """Ask every running job to stop in good order; `wait` still tells how they end."""
        ...


def handed_over(job: Job, folder: Path, engine: str, token: str, cores: int) -> Task:
    """`job` for another machine that sees the same files; from now on its ticket, in the sweep's
    `folder`, says that it is queued. Errors: Failure."""
    log = log_file(folder, job.id).absolute()
    write_ticket(log, Ticket(engine, token))
    return Task([job.argv], cores, str(Path.cwd()), str(log), engine, token)
