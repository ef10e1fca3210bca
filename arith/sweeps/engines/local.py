"""A pool of subprocesses on this machine: a slot is a share of the cores, and of the GPUs if any.

Each job is a `tape-arith` of its own with its output in a log. Children stop when they are asked
(SIGTERM: they save and exit with 75), and they never outlive this process.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.child_process import begin, last_line
from tape_arith.arith.sweeps.engines.engine import Ended
from tape_arith.arith.sweeps.jobs import Job, log_file

SECONDS_BETWEEN_LOOKS = 0.1


@dataclass
class _Child:
    job: Job
    process: "subprocess.Popen[bytes]"
    slot: int
    log: Path
    began: float


class Local:
    """Up to `slots` jobs at a time; `gpus` are shared out among the slots. What jobs say goes to
    logs in `folder`."""

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
        log = log_file(self.folder, job.id)
        try:
            process = begin(argv, log, self.environment(slot), apart=True)
        except OSError as error:
            raise Failure(f"cannot start {job.id}: {error}") from error
        self.children.append(_Child(job, process, slot, log, time.perf_counter()))

    def environment(self, slot: int) -> dict[str, str]:
        """A slot's share of the machine."""
        share = {"OMP_NUM_THREADS": str(cores_a_slot(self.slots))}
        if self.gpus:
            share["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        return share

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
        """Once: a second signal would end them as they stand."""
        for child in self.children if not self.stopping else []:
            child.process.terminate()
        self.stopping = True


def cores_a_slot(slots: int) -> int:
    """The threads that each of so many jobs at a time is given."""
    return max(1, (os.cpu_count() or 1) // slots)


def visible_gpus() -> list[str]:
    """The GPUs that jobs may be given, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
