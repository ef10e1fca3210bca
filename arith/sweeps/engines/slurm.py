"""Run jobs as arrays of Slurm batch jobs; the nodes share the file system.

A batch job runs the program `worker` for one line of a file. The job's state file has its state and
how it ended; squeue lists the jobs that are queued or running. Jobs continue without this process,
and the next call finds them.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_FAILED, EXIT_PARTLY, Failure, UsageError
from tape_arith.arith.files import write_text
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.engines.worker import JobState, read_state, state_file, write_state
from tape_arith.arith.sweeps.jobs import Job, JobEnd, log_file
from tape_arith.arith.terminal import say

SECONDS_BETWEEN_LOOKS = 5.0
LOST_AFTER = 30.0  # seconds: other nodes see a node's last write late
LONGEST_SILENCE = 600.0  # seconds without squeue, whose controller may be restarting
WORKER = "tape_arith.arith.sweeps.engines.worker"
_LARGEST_ARRAY = 1_000  # Slurm's default MaxArraySize is 1,001, with indices from 0


class Slurm(Engine):
    """Keeps up to `slots` jobs in the queue, and runs `throttle` of each array at a time.

    Jobs get a signal `warning` seconds before a preemption or the end of their time. Environment
    variables of sbatch, such as SBATCH_QOS, set further options.

    setup   lines of bash before each job, such as "module load cuda; source env.sh"
    detach  leave the jobs to Slurm once they are sent; the next call finds them
    """

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
        gres: str = "",
        throttle: int = 0,
        warning: int = 60,
        setup: str = "",
        detach: bool = False,
    ) -> None:
        self.slots, self.folder = min(slots or _LARGEST_ARRAY, _LARGEST_ARRAY), folder
        self.cpus, self.limit = cpus, f"%{throttle}" if throttle else ""
        flags = {"partition": partition, "account": account, "time": time, "mem": memory}
        flags |= {"gpus": str(gpus or ""), "gres": gres}
        flags |= {"cpus-per-task": str(cpus), "ntasks": "1"}
        flags |= {"signal": f"B:USR2@{warning}", "open-mode": "append", "chdir": str(Path.cwd())}
        self.options = ["--requeue", *(f"--{key}={value}" for key, value in flags.items() if value)]
        self.unsent: list[Job] = []
        self.jobs: dict[str, Job] = {}  # by token: ARRAY_INDEX
        self.missing: dict[str, float] = {}
        self.setup, self.detach = setup, detach
        self.queue: set[str] | None = None
        self.answered = self.looked = monotonic()
        self.stopping, self.patience = False, LOST_AFTER

    @property
    def free(self) -> float:
        return self.slots - len(self.jobs) - len(self.unsent)

    def connect(self) -> None:
        """Read Slurm's queue. Raises UsageError where there is no Slurm."""
        if shutil.which("sbatch") is None:
            raise UsageError(
                "engine slurm: no `sbatch` here: run this on a machine that has it "
                "(--dry-run shows what it would send)"
            )
        queue = _queue()
        if queue is None:
            raise UsageError("engine slurm: squeue does not answer: start slurmctld")
        self.queue = queue

    def submit(self, job: Job) -> None:
        if self.queue is None:
            self.connect()
        assert self.queue is not None
        state = read_state(log_file(self.folder, job.id))
        if state and not state.is_final and state.token in self.queue:
            say(f"in Slurm's queue already: {job.id}")
            self.jobs[state.token] = job
        else:
            self.unsent.append(job)

    def wait(self, seconds: float) -> list[JobEnd]:
        if self.unsent and not self.stopping:
            jobs, self.unsent = self.unsent, []
            self._send(jobs)
        if self.detach and not self.stopping:
            reason = "in Slurm's queue: the same command finds it again"
            ended = [JobEnd(job, EXIT_PARTLY, reason) for job in self.jobs.values()]
            self.jobs.clear()
            return ended
        sleep(max(0.0, min(seconds, self.looked + SECONDS_BETWEEN_LOOKS - monotonic())))
        return self._look() if monotonic() >= self.looked + SECONDS_BETWEEN_LOOKS else []

    def stop(self) -> None:
        """Cancel waiting jobs; ask running jobs to stop."""
        self.stopping, self.patience = True, 0.0
        for array in {token.rpartition("_")[0] for token in self.jobs}:
            _call("scancel", f"--name={array}", "--state=PENDING")
            _call("scancel", f"--name={array}", "--state=RUNNING", "--batch", "--signal=TERM")

    def _send(self, jobs: list[Job]) -> None:
        """Submit jobs as one array. Raises Failure if sbatch refuses."""
        array = f"tape-arith-{uuid4().hex[:12]}"
        place, words, script = self._batch(array, len(jobs))
        tokens = {f"{array}_{number}": job for number, job in enumerate(jobs)}
        logs = [log_file(self.folder, job.id).absolute() for job in jobs]
        for log, (token, job) in zip(logs, tokens.items(), strict=True):
            argv, directory = tuple(job.argv), str(Path.cwd())
            write_state(log, JobState("slurm", token, argv, self.cpus, directory))
        write_text(Path(f"{place}.txt"), "\n".join(map(str, logs)))
        answer = _call(*words, script=script)
        if answer.returncode:
            for log in logs:
                state_file(log).unlink()
            raise Failure(f"sbatch refuses: {answer.stderr.strip()}")
        say(f"array {answer.stdout.strip()} of {len(jobs)} jobs is in Slurm's queue")
        self.jobs |= tokens

    def _batch(self, array: str, count: int) -> tuple[Path, list[str], str]:
        """Return where the files of an array are, the command that sends it, and its script."""
        place = (self.folder / "slurm" / array).absolute()
        labels = [f"--job-name={array}", f"--output={place}_%a.out"]
        words = ["sbatch", "--parsable", *labels, f"--array=0-{count - 1}{self.limit}"]
        lines = [
            "#!/bin/bash",
            *filter(None, [self.setup]),
            f"exec {shlex.join([sys.executable, '-m', WORKER, f'{place}.txt'])} \\",
            '    SLURM_ARRAY_TASK_ID scontrol requeue "$SLURM_JOB_ID"',
        ]
        return place, [*words, *self.options], "\n".join(lines) + "\n"

    def preview(self, count: int) -> str:
        """Return the command and the script that send `count` jobs."""
        _, words, script = self._batch("tape-arith-ARRAY", count)
        about = "# ARRAY stands for a name that each array gets when it is sent."
        return f"{shlex.join(words)} <<'SCRIPT'\n{script}SCRIPT\n{about}"

    def _look(self) -> list[JobEnd]:
        """Return the jobs that ended.

        Reads the queue before the states, so that a job that ends in between is not lost.
        """
        queue, self.looked = _queue(), monotonic()
        if queue is not None:
            self.queue, self.answered = queue, self.looked
        elif self.looked - self.answered > LONGEST_SILENCE:
            raise Failure("squeue does not answer: jobs continue, and the next call finds them")
        ended = [JobEnd(job, EXIT_AGAIN, "stopped") for job in self.unsent]
        self.unsent.clear()
        for token, job in [*self.jobs.items()]:
            log = log_file(self.folder, job.id)
            state = read_state(log)
            if state and state.token == token and state.state == "ended":
                ended.append(JobEnd(job, state.code, state.reason, log))
            elif queue is None or token in queue:
                self.missing.pop(token, None)
                continue
            elif self.looked - self.missing.setdefault(token, self.looked) < self.patience:
                continue
            else:
                write_state(log, JobState("slurm", token, state="stopped"))
                reason = "left Slurm's queue without a word: cancelled, or killed"
                code = EXIT_AGAIN if self.stopping else EXIT_FAILED
                ended.append(JobEnd(job, code, reason, log))
            del self.jobs[token]
        return ended


def _queue() -> set[str] | None:
    """Return the tokens of the jobs in the queue; None if Slurm does not answer."""
    answer = _call("squeue", "--me", "--array", "--noheader", "--format=%j_%K")
    return None if answer.returncode else set(answer.stdout.split())


def _call(*words: str, script: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, input=script, capture_output=True, text=True, check=False)
