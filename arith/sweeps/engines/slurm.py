"""Slurm: jobs go as arrays of batch jobs, sent with sbatch; nodes share the file system.

A job is `sweeps.worker` with a line of a file: nothing is pickled. Its ticket says how it
ended, squeue which are still there: they go on without this process, and the next call finds them.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_FAILED, Failure
from tape_arith.arith.files import write_text
from tape_arith.arith.sweeps import worker
from tape_arith.arith.sweeps.engines.engine import NO_BOUND, Ended, handed_over
from tape_arith.arith.sweeps.jobs import Job, log_file
from tape_arith.arith.sweeps.tickets import Ticket, read_ticket, ticket_file, write_ticket
from tape_arith.arith.terminal import say

SECONDS_BETWEEN_LOOKS = 5.0
LOST_AFTER, LOST_TIMES = 30.0, 3  # what a node wrote last takes its time to be seen from elsewhere
SILENT_FOR = 600.0  # squeue, that is: a controller may be started anew meanwhile
LARGEST_ARRAY = 1_000  # Slurm's own default for MaxArraySize is 1,001, which counts from 0


class Slurm:
    """Up to `slots` jobs in the queue, `throttle` of each array at a time, warned so many seconds
    before a preemption or the end of their time. For more there are variables like SBATCH_QOS."""

    def __init__(
        self,
        slots: int | None,
        folder: Path,
        *,
        partition: str = "",
        account: str = "",
        time: str = "",
        memory: str = "",
        cpus: int = 1,
        gpus: int = 0,
        throttle: int = 0,
        warning: int = 60,
    ) -> None:
        self.slots, self.folder = slots or NO_BOUND, folder
        self.cpus, self.limit = cpus, f"%{throttle}" if throttle else ""
        given = {"partition": partition, "account": account, "time": time, "mem": memory}
        given |= {"gpus": str(gpus or ""), "cpus-per-task": str(cpus), "ntasks": "1"}
        given |= {"signal": f"B:USR2@{warning}", "open-mode": "append", "chdir": str(Path.cwd())}
        self.options = ["--requeue", *(f"--{key}={value}" for key, value in given.items() if value)]
        self.unsent: list[Job] = []
        self.jobs: dict[str, Job] = {}  # by token: the name of their array and their number in it
        self.missing, self.lost = dict[str, float](), dict[str, int]()
        self.queue = _queue() or set()
        self.answered = self.looked = monotonic()
        self.stopping, self.patience = False, LOST_AFTER

    @staticmethod
    def lacks() -> str | None:
        """Why it cannot be used here, as the end of a sentence."""
        if shutil.which("sbatch") is None:
            return "there is no `sbatch` here: install Slurm, or call this where jobs are submitted"
        asked = _call("squeue", "--noheader", "--me")
        return f"start slurmctld: {asked.stderr.strip()}" if asked.returncode else None

    @property
    def free(self) -> int:
        return self.slots - len(self.jobs) - len(self.unsent)

    def submit(self, job: Job, seconds: float | None) -> None:
        ticket = read_ticket(log_file(self.folder, job.id))
        if ticket and ticket.state != "ended" and ticket.token in self.queue:
            say(f"in Slurm's queue already: {job.id}")
            self.jobs[ticket.token] = job
        else:
            self.unsent.append(job)

    def wait(self, seconds: float) -> list[Ended]:
        while self.unsent and not self.stopping:
            self._send([self.unsent.pop(0) for _ in self.unsent[:LARGEST_ARRAY]])
        sleep(max(0.0, min(seconds, self.looked + SECONDS_BETWEEN_LOOKS - monotonic())))
        return self._look() if monotonic() >= self.looked + SECONDS_BETWEEN_LOOKS else []

    def stop(self) -> None:
        """What waits is cancelled, what runs is asked."""
        self.stopping, self.patience = True, 0.0
        for array in {token.rpartition("_")[0] for token in self.jobs}:
            _call("scancel", f"--name={array}", "--state=PENDING")
            _call("scancel", f"--name={array}", "--state=RUNNING", "--batch", "--signal=TERM")

    def _send(self, jobs: list[Job]) -> None:
        array = f"tape-arith-{uuid4().hex[:12]}"
        place = (self.folder / "slurm" / array).absolute()
        tokens = {f"{array}_{number}": job for number, job in enumerate(jobs)}
        tasks = [handed_over(j, self.folder, "slurm", t, self.cpus) for t, j in tokens.items()]
        write_text(Path(f"{place}.jsonl"), "".join(task.line() + "\n" for task in tasks))
        script = f"""#!/bin/sh
exec {shlex.join([sys.executable, "-m", worker.__name__, f"{place}.jsonl"])} \\
    SLURM_ARRAY_TASK_ID scontrol requeue "$SLURM_JOB_ID"
"""
        named = (f"--job-name={array}", f"--output={place}_%a.out")
        numbers = f"--array=0-{len(jobs) - 1}{self.limit}"
        sent = _call("sbatch", "--parsable", *named, numbers, *self.options, script=script)
        if sent.returncode:
            for task in tasks:
                ticket_file(Path(task.log)).unlink()
            raise Failure(f"sbatch refuses: {sent.stderr.strip()}")
        say(f"array {sent.stdout.strip()} of {len(jobs)} jobs is in Slurm's queue")
        self.jobs |= tokens

    def _look(self) -> list[Ended]:
        """How jobs ended; the queue is asked first: who leaves it after that is seen next time."""
        queue, self.looked = _queue(), monotonic()
        if queue is not None:
            self.queue, self.answered = queue, self.looked
        elif self.looked - self.answered > SILENT_FOR:
            raise Failure("squeue does not answer: what was sent goes on, the next call finds it")
        ended = [Ended(job, EXIT_AGAIN, "stopped") for job in self.unsent]
        self.unsent.clear()
        for token, job in [*self.jobs.items()]:
            log = log_file(self.folder, job.id)
            ticket = read_ticket(log)
            if ticket and ticket.token == token and ticket.state == "ended":
                ended.append(Ended(job, ticket.code, ticket.reason, log, ticket.seconds))
            elif queue is None or token in queue:
                self.missing.pop(token, None)
                continue
            elif self.looked - self.missing.setdefault(token, self.looked) < self.patience:
                continue
            else:
                write_ticket(log, Ticket("slurm", token, "stopped"))
                self.lost[job.id] = times = self.lost.get(job.id, 0) + 1
                reason = "left Slurm's queue without a word: cancelled, or killed"
                code = EXIT_AGAIN if times < LOST_TIMES else EXIT_FAILED
                ended.append(Ended(job, code, reason, log))
            del self.jobs[token]
        return ended


def _queue() -> set[str] | None:
    """The tokens of what is in the queue; None where Slurm does not answer."""
    asked = _call("squeue", "--me", "--array", "--noheader", "--format=%j_%K")
    return None if asked.returncode else set(asked.stdout.split())


def _call(*words: str, script: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, input=script, capture_output=True, text=True, check=False)
