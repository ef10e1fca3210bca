"""Jobs on this machine: one after another in this process, or side by side in subprocesses."""

import os
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tape_arith.arith.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PARTLY,
    EXIT_USAGE,
    Failure,
    UsageError,
)
from tape_arith.arith.runs.child_process import last_line, start_command
from tape_arith.arith.sweeps.engines.engine import Ended
from tape_arith.arith.sweeps.jobs import Job, log_file

SECONDS_BETWEEN_LOOKS = 0.1


class InProcess:
    """Runs one job at a time in this process: its bar is the terminal's, and torch starts once.

    `perform` does a job and returns whether it came to its end.
    """

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
            default = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
            code = getattr(error, "exit_code", default)
        except Exception as error:  # as in a process of its own, it ends no other job
            traceback.print_exc()
            code, reason = EXIT_FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}"
        self.ended.append(Ended(job, code, reason, None, time.perf_counter() - began))

    def wait(self, seconds: float) -> list[Ended]:
        if not self.ended:
            time.sleep(seconds)
        ended, self.ended = self.ended, []
        return ended

    def stop(self) -> None:
        """No-op: jobs run synchronously."""


@dataclass
class _Child:
    job: Job
    process: "subprocess.Popen[bytes]"
    slot: int
    log: Path
    began: float


class Local:
    """Runs up to `slots` jobs at a time as subprocesses, which log to `folder`.

    A slot is a share of the cores, and of the `gpus` if there are any. Children are asked to stop
    with SIGTERM, on which they save and exit with 75, and they never outlive this process.
    """

    def __init__(self, slots: int, folder: Path, gpus: Sequence[str] = ()) -> None:
        self.slots, self.folder, self.gpus = slots, folder, gpus
        self.children: list[_Child] = []
        self.stopping = False

    @property
    def free(self) -> int:
        return self.slots - len(self.children)

    def submit(self, job: Job, seconds: float | None) -> None:
        slot = min(set(range(self.slots)) - {child.slot for child in self.children})
        argv = job.argv
        if seconds is not None and job.kind in ("train", "score"):
            argv += ["--time-limit", f"{max(seconds, 1e-3):.3f}s"]
        share = {"OMP_NUM_THREADS": str(cores_per_slot(self.slots))}
        if self.gpus:
            share["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        log = log_file(self.folder, job.id)
        try:
            process = start_command(argv, log, share, own_session=True)
        except OSError as error:
            raise Failure(f"cannot start {job.id}: {error}") from error
        self.children.append(_Child(job, process, slot, log, time.perf_counter()))

    def wait(self, seconds: float) -> list[Ended]:
        deadline = time.monotonic() + seconds
        while True:
            over = [child for child in self.children if child.process.poll() is not None]
            if over or time.monotonic() >= deadline:
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
        self.children = [child for child in self.children if child not in over]
        return [
            Ended(
                child.job,
                child.process.returncode,
                last_line(child.log) or f"ended with {child.process.returncode}",
                child.log,
                time.perf_counter() - child.began,
            )
            for child in over
        ]

    def stop(self) -> None:
        """Ask once: a second signal would end the children as they stand."""
        for child in self.children if not self.stopping else []:
            child.process.terminate()
        self.stopping = True


def cores_per_slot(slots: int) -> int:
    """The threads that each of `slots` jobs at a time is given."""
    return max(1, (os.cpu_count() or 1) // slots)


def visible_gpus() -> list[str]:
    """The GPUs that jobs may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
