"""One job after another in this process: its bar is the terminal's, and torch starts once."""

import time
import traceback
from collections.abc import Callable

from tape_arith.arith.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PARTLY,
    EXIT_USAGE,
    Failure,
    UsageError,
)
from tape_arith.arith.sweeps.engines.engine import Ended
from tape_arith.arith.sweeps.jobs import Job


class InProcess:
    """`perform` does a job and says whether it came to its end."""

    def __init__(self, perform: Callable[[Job], bool]) -> None:
        self.perform = perform
        self.ended: list[Ended] = []

    @property
    def free(self) -> int:
        return 0 if self.ended else 1

    def submit(self, job: Job, seconds: float | None) -> None:
        code, reason, began = EXIT_PARTLY, "", time.perf_counter()
        try:
            if self.perform(job):
                code = EXIT_DONE
        except (UsageError, Failure, OSError) as error:
            reason = " ".join(str(error).split())
            usual = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
            code = getattr(error, "exit_code", usual)
        except Exception as error:
            # As where a job is a process of its own: its fault ends no other job.
            traceback.print_exc()
            code, reason = EXIT_FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}"
        self.ended.append(Ended(job, code, reason, None, time.perf_counter() - began))

    def wait(self, seconds: float) -> list[Ended]:
        if not self.ended:
            time.sleep(seconds)
        ended, self.ended = self.ended, []
        return ended

    def stop(self) -> None:
        """Nothing runs while somebody can ask."""
