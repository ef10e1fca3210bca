"""A pool of subprocesses on this machine: a slot is a share of the cores, and of the GPUs if any.

Each job is a `tape-arith` of its own with its output in a log. Children stop when they are asked
(SIGTERM: they save and exit with 75), and they never outlive this process.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arith.errors import Failure
from arith.suite.engines.engine import Ended
from arith.suite.plan import Job, log_file

COMMAND_LINE = Path(__file__).resolve().parents[3] / "cli.py"
SECONDS_BETWEEN_LOOKS = 0.1
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


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
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "ab") as file:
                file.write(f"$ tape-arith {' '.join(argv)}\n".encode())
                file.flush()
                process = subprocess.Popen(
                    [sys.executable, str(COMMAND_LINE), *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self.environment(slot)},
                    start_new_session=True,  # Ctrl-C is for us: we pass it on, once
                    preexec_fn=_die_with_parent,
                )
        except OSError as error:
            raise Failure(f"cannot start {job.id}: {error}") from error
        self.children.append(_Child(job, process, slot, log, time.perf_counter()))

    def environment(self, slot: int) -> dict[str, str]:
        """A slot's share of the machine."""
        cores = max(1, (os.cpu_count() or 1) // self.slots)
        share = {"OMP_NUM_THREADS": str(cores)}
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


def last_line(log: Path) -> str:
    """What a job said last, without the name of the command before it."""
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    said = lines[-1] if lines else ""
    return "" if said.startswith("$ ") else said.removeprefix("tape-arith: ")


def visible_gpus() -> list[str]:
    """The GPUs that jobs may be given, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM)


_LIBC = ctypes.CDLL(None)  # opened here: between fork and exec nothing may be loaded
