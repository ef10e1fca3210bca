"""Run jobs on this machine: one by one in this process, or in parallel in subprocesses."""

import subprocess
import time
import traceback
from contextlib import suppress
from pathlib import Path

from tape_arith.arith.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PARTLY,
    EXIT_USAGE,
    Failure,
    UsageError,
)
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.engines.worker import last_line, start_command
from tape_arith.arith.sweeps.jobs import Job, JobEnd, log_file
from tape_arith.arith.sweeps.slots import Slots, visible_gpus
from tape_arith.arith.terminal import say

SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LINES = 0.1, 30.0


def local_engine(slots: Slots, folder: Path, stopper: Stopper) -> Engine:
    """Return the engine of this machine.

    With one slot, jobs run in this process, which shows progress bars and imports torch once.
    """
    return InProcess(stopper) if slots.count == 1 else Subprocesses(slots, folder)


class InProcess(Engine):
    """Runs one job at a time in this process."""

    here = True

    def __init__(self, stopper: Stopper) -> None:
        self.stopper = stopper
        self.ended: list[JobEnd] = []

    @property
    def free(self) -> int:
        return 0 if self.ended else 1

    def submit(self, job: Job) -> None:
        code, reason = EXIT_PARTLY, ""
        try:
            if job.perform(self.stopper):
                code = EXIT_DONE
        except Exception as error:  # a failed job must not end the others
            reason = " ".join(str(error).split())
            code = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
            code = getattr(error, "exit_code", code)
            if not isinstance(error, UsageError | Failure | OSError):
                traceback.print_exc()
                reason = f"{type(error).__name__}: {reason}"
        self.ended.append(JobEnd(job, code, reason))

    def wait(self, seconds: float) -> list[JobEnd]:
        if not self.ended:
            time.sleep(seconds)
        ended, self.ended = self.ended, []
        return ended

    def stop(self) -> None:
        """Do nothing, because no job runs during this call."""


class Subprocesses(Engine):
    """Runs a job per slot, each in a subprocess that logs to `folder`.

    A job has its share of the threads and, if there are GPUs, one GPU, which jobs may share. `stop`
    sends SIGTERM; children then save and exit with 75. They never outlive this process.
    """

    here = True

    def __init__(self, slots: Slots, folder: Path) -> None:
        self.slots, self.folder, self.gpus = slots, folder, visible_gpus()
        self.children: dict[subprocess.Popen[bytes], tuple[Job, int]] = {}
        self.stopping = False
        self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES

    @property
    def free(self) -> int:
        return self.slots.count - len(self.children)

    def submit(self, job: Job) -> None:
        slot = min(set(range(self.slots.count)) - {slot for _, slot in self.children.values()})
        share = {"OMP_NUM_THREADS": str(self.slots.threads_of(job))}
        if self.gpus:
            share["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        process = start_command(job.argv, log_file(self.folder, job.id), share, own_session=True)
        say(f"started: {job.id}")
        self.children[process] = job, slot

    def wait(self, seconds: float) -> list[JobEnd]:
        deadline = time.monotonic() + seconds
        ended: list[JobEnd] = []
        while not ended and time.monotonic() < deadline:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            for process in [child for child in self.children if child.poll() is not None]:
                job, _ = self.children.pop(process)
                code, log = process.returncode, log_file(self.folder, job.id)
                ended.append(JobEnd(job, code, last_line(log) or f"ended with {code}", log))
        if time.monotonic() >= self.next_line:
            self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES
            self._say_progress()
        return ended

    def _say_progress(self) -> None:
        """Print a line with the steps of the running trainings."""
        lines = []
        for job, _ in self.children.values():
            with suppress(Failure):  # a corrupt file, which the job itself reports
                now = job.progress()
                lines += [f"{job.id} {now.step:,}/{now.steps:,}"] if now.steps else []
        if lines:
            say(f"running: {', '.join(lines)}")

    def stop(self) -> None:
        """Ask the children once, because a second signal would end them before they save."""
        for process in self.children if not self.stopping else ():
            process.terminate()
        self.stopping = True
