"""What an engine is: four words, so that others (a cluster's) fit beside the local one."""

from pathlib import Path
from typing import NamedTuple, Protocol

from arith.suite.plan import Job

EXIT_DONE, EXIT_PARTLY, EXIT_AGAIN, EXIT_INTERRUPTED = 0, 3, 75, 130


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
