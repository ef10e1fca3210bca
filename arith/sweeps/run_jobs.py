"""Run jobs on an engine, each after those it depends on. Never imports torch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tape_arith.arith.errors import (
    EXIT_AGAIN,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PARTLY,
    EXIT_USAGE,
    Failure,
    UsageError,
)
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.jobs import Job, JobEnd, ScoreJob, done_jobs
from tape_arith.arith.terminal import say

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BEFORE_AGAIN = 5.0


@dataclass
class Outcome:
    """The result of jobs: which failed, whether any are left to do, and the written files."""

    failed: list[JobEnd] = field(default_factory=list)
    left: bool = False
    files: list[Path] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if jobs failed (2 if all by wrong usage), 3 if partly done, else 0."""
        if self.failed:
            usage = all(end.code == EXIT_USAGE for end in self.failed)
            return EXIT_USAGE if usage else EXIT_FAILED
        return EXIT_PARTLY if self.left else EXIT_DONE


def run_jobs(
    jobs: Sequence[Job],
    engine: Engine,
    stopper: Stopper,
    *,
    succeeded: Callable[[Job], None] = lambda job: None,
    failed: Callable[[JobEnd], None] = lambda end: None,
) -> Outcome:
    """Run the jobs that are not done: each after those it depends on, never two on one folder.

    `succeeded` gets each job that is then done. A job that fails is passed to `failed` and does not
    stop the others. One that was preempted, or whose folder is locked, is tried again.
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
        busy_folders = {job.folder for job in running.values()}
        for job in [] if stopping else [*waiting]:
            if engine.free < 1 or stopper():
                break
            delayed = time.monotonic() < not_before.get(job.id, 0.0)
            if delayed or job.folder in busy_folders or not done.issuperset(job.depends):
                continue
            busy_folders.add(job.folder)
            waiting.remove(job)
            if job.done():  # another process did it meanwhile
                done.add(job.id)
                continue
            running[job.id] = job
            engine.submit(job)
        can_start = any(done.issuperset(job.depends) for job in waiting)
        if not running and (stopping or not can_start):
            break
        for end in engine.wait(SECONDS_BETWEEN_LOOKS):
            del running[end.job.id]
            if isinstance(end.job, ScoreJob):
                say_result(end.job)
            # The exit code is not enough: the job's files must say that it is done.
            if end.code == EXIT_DONE and end.job.done():
                done.add(end.job.id)
                succeeded(end.job)
            elif end.code == EXIT_AGAIN and not stopper():
                say(f"again in {SECONDS_BEFORE_AGAIN:.0f} s: {end.job.id}: {end.reason}")
                not_before[end.job.id] = time.monotonic() + SECONDS_BEFORE_AGAIN
                waiting.insert(0, end.job)
            elif end.code == EXIT_PARTLY or (stopper() and _is_stop(end.code)):
                outcome.left = True
            else:
                if end.code == EXIT_DONE:
                    reason = "exited with 0, but its files are not there"
                    end = end._replace(code=EXIT_FAILED, reason=reason)
                outcome.failed.append(end)
                failed(end)
    hopeless = {end.job.id for end in outcome.failed}
    for job in jobs:  # each follows the jobs that it depends on
        if not hopeless.isdisjoint(job.depends):
            hopeless.add(job.id)
    outcome.left |= any(job.id not in hopeless for job in waiting)
    return outcome


def _is_stop(code: int) -> bool:
    """Return whether `code` means that a job was stopped (< 0: before it handled signals)."""
    return code in (EXIT_AGAIN, EXIT_INTERRUPTED) or code < 0


def with_files(outcome: Outcome, write: Callable[[], list[Path]]) -> Outcome:
    """Add the files that `write` writes.

    If it fails, the error is raised only if the jobs themselves give no reason to end otherwise.
    """
    try:
        return replace(outcome, files=write())
    except (Failure, UsageError, OSError):
        if outcome.exit_code == EXIT_DONE:
            raise
        return outcome


def say_result(job: ScoreJob) -> None:
    """Print the means of a grid, if it is complete."""
    if grid := job.request.complete_grid(job.evaluation_set):
        varied = (f"{key}={value} " for key, value in job.request.settings.items())
        say("".join(varied) + grid.summary())
