"""Start jobs and report how they end; `run_jobs` decides the rest.

local   in this process, or in subprocesses     ray    tasks of a Ray cluster
worker  a job on a node of a cluster            slurm  arrays of batch jobs

Every file in this folder except `worker` is an engine: --engine takes the file's name, and the
keyword-only arguments of its last class are the engine's options. Never imports torch.
"""

import re
from pathlib import Path
from typing import Protocol

from tape_arith.arith.registry.locate import locate
from tape_arith.arith.registry.names import read_options
from tape_arith.arith.sweeps.jobs import Job, JobEnd


class Engine(Protocol):
    """Runs independent jobs at the same time."""

    here: bool = False
    """Whether jobs run on this machine."""

    def connect(self) -> None:
        """Reach what runs the jobs, before the first one. Raises UsageError if it is missing."""
        return

    @property
    def free(self) -> float:
        """The number of jobs that can be submitted now."""

    def submit(self, job: Job) -> None:
        """Start `job`, or queue it for its start."""

    def wait(self, seconds: float) -> list[JobEnd]:
        """Wait up to `seconds` for a job to end; return all jobs that ended since the last call."""

    def stop(self) -> None:
        """Ask every running job to save and stop; `wait` still returns how they end."""

    def preview(self, count: int) -> str:
        """Return how `count` jobs would be sent; "" if there is nothing to show."""
        return ""


def remote_engine(text: str, slots: int | None, folder: Path) -> Engine | None:
    """Build the engine `name[:key=value...]`; return None if its jobs run on this machine.

    The engine runs up to `slots` jobs at a time (None: its own limit). Logs and states are in
    `folder`. Raises UsageError for an unknown name or option, or if a library is missing.
    """
    name, *settings = re.split(r":(?=\w+=)", text.strip())  # a value may hold colons
    location = locate("engine", name)
    declared = location.declaration()
    options = read_options(text, settings, declared)
    engine = getattr(location.load(), declared.class_name)
    return None if engine.here else engine(slots, folder, **options)
