"""Run jobs through an engine: what is ready starts, what is done stays done, and what fails does
not stop the others. No torch here."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tape_arith.arith.errors import (
    EXIT_AGAIN,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PARTLY,
    EXIT_USAGE,
)
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps.engines.engine import Ended, Engine
from tape_arith.arith.sweeps.jobs import Job, done_jobs
from tape_arith.arith.terminal import say

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BEFORE_AGAIN = 5.0


@dataclass
class Outcome:
    """What a call did: jobs that it ended, jobs that failed, and whether any is left."""

    done: list[Ended] = field(default_factory=list)
    failed: list[Ended] = field(default_factory=list)
    left: bool = False

    @property
    def exit_code(self) -> int:
        """0 done; 1 or 2 if jobs failed (2 if all of them by wrong usage); 3 partly done."""
        if self.failed:
            usage = all(ended.code == EXIT_USAGE for ended in self.failed)
            return EXIT_USAGE if usage else EXIT_FAILED
        return EXIT_PARTLY if self.left else EXIT_DONE


def run_jobs(
    jobs: Sequence[Job],
    engine: Engine,
    stopper: Stopper,
    *,
    started: Callable[[Job], None] = lambda job: None,
    ended: Callable[[Ended], None] = lambda ended: None,
) -> Outcome:
    """Run the jobs that are not done, each after those it depends on, never two on one folder.

    A job that was preempted, or whose folder another process has locked, is tried again.
    """
    done = done_jobs(jobs)
    waiting = [job for job in jobs if job.id not in done]
    running: dict[str, Job] = {}
    not_before: dict[str, float] = {}
    outcome, stopping = Outcome(), False
    while waiting or running:
        if stopper() and not stopping:
            stopping = True
            engine.stop()
        for job in [] if stopping else _ready(waiting, running, done, not_before):
            if engine.free < 1 or stopper():
                break
            waiting.remove(job)
            if job.done():  # by another process, meanwhile
                done.add(job.id)
                continue
            running[job.id] = job
            started(job)
            engine.submit(job, stopper.seconds_left)
        can_start = any(done.issuperset(job.depends) for job in waiting)
        if not running and (stopping or not can_start):
            break
        for end in engine.wait(SECONDS_BETWEEN_LOOKS):
            del running[end.job.id]
            ended(end)
            # Files say what is done, never an exit code alone; a dataset has no such file.
            if end.code == EXIT_DONE and (end.job.kind == "generate" or end.job.done()):
                done.add(end.job.id)
                outcome.done.append(end)
            elif end.code == EXIT_AGAIN and not stopper():
                say(f"again in {SECONDS_BEFORE_AGAIN:.0f} s: {end.job.id}: {end.reason}")
                not_before[end.job.id] = time.monotonic() + SECONDS_BEFORE_AGAIN
                waiting.insert(0, end.job)
            elif _stopped_early(end.code, stopper()):
                outcome.left = True
            else:
                if end.code == EXIT_DONE:
                    reason = "exited with 0, but its files are not there"
                    end = end._replace(code=EXIT_FAILED, reason=reason)
                outcome.failed.append(end)
    failed = {end.job.id for end in outcome.failed}
    if any(not _depends_on_failed(job, waiting, failed) for job in waiting):
        outcome.left = True
    return outcome


def _ready(
    waiting: Sequence[Job], running: dict[str, Job], done: set[str], not_before: dict[str, float]
) -> list[Job]:
    """The jobs that may start now, in order; of those that write one folder only the first."""
    now, taken = time.monotonic(), {job.folder.path for job in running.values()}
    ready = []
    for job in waiting:
        if now < not_before.get(job.id, 0) or not done.issuperset(job.depends):
            continue
        if job.folder.path not in taken:
            taken.add(job.folder.path)
            ready.append(job)
    return ready


def _depends_on_failed(job: Job, waiting: Sequence[Job], failed: set[str]) -> bool:
    """Whether `job` waits for a failed job, over any number of others."""
    others = {other.id: other for other in waiting}
    return any(
        key in failed or (key in others and _depends_on_failed(others[key], waiting, failed))
        for key in job.depends
    )


def _stopped_early(code: int, stopping: bool) -> bool:
    """Whether a job ended in good order, by its own time limit or because we stopped it.

    A negative code is a signal that came before it could handle one.
    """
    return code == EXIT_PARTLY or (
        stopping and (code in (EXIT_AGAIN, EXIT_INTERRUPTED) or code < 0)
    )
