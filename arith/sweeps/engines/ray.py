"""Run jobs as tasks of a Ray cluster whose nodes share the sender's file system.

A task gets the path of a job's log, and runs the job's command line like every engine. If a node is
lost, Ray runs its tasks again on another node, where they resume.
"""

import sys
from contextlib import redirect_stdout
from logging import ERROR
from math import inf
from pathlib import Path
from time import sleep
from typing import Any

from tape_arith.arith.errors import EXIT_AGAIN, EXIT_FAILED, UsageError
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.engines.worker import JobState, Worker, write_state
from tape_arith.arith.sweeps.jobs import Job, JobEnd, log_file


class Ray(Engine):
    """Runs up to `slots` jobs in the cluster at `address` ("auto": RAY_ADDRESS, or this machine).

    Each job has `cpus` CPUs and `gpus` GPUs (also fractions), and `retries` if its node is lost.
    """

    def __init__(
        self,
        slots: int | None,
        folder: Path,
        *,
        address: str = "auto",
        cpus: float = 1,
        gpus: float = 0,
        retries: int = 3,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError(
                "engine ray: the package ray is not installed: pip install 'tape-arith[ray]'"
            ) from None
        self.slots, self.folder = slots or inf, folder
        self.cores = max(1, int(cpus))
        try:
            ray.init(address=address, log_to_driver=False, logging_level=ERROR)
        except (ConnectionError, RuntimeError) as error:
            raise UsageError(
                f"engine ray: no cluster at '{address}': start one with `ray start --head`, or "
                f"name it with ray:address=HOST:PORT ({str(error).splitlines()[0]})"
            ) from error
        self.ray: Any = ray
        self.remote = ray.remote(_on_node)
        self.options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": retries}
        self.jobs: dict[Any, Job] = {}

    @property
    def free(self) -> float:
        return self.slots - len(self.jobs)

    def submit(self, job: Job) -> None:
        log, argv = log_file(self.folder, job.id).absolute(), tuple(job.argv)
        write_state(log, JobState("ray", "", argv, self.cores, str(Path.cwd())))
        self.jobs[self.remote.options(name=job.id, **self.options).remote(str(log))] = job

    def wait(self, seconds: float) -> list[JobEnd]:
        if not self.jobs:
            sleep(seconds)
            return []
        with redirect_stdout(sys.stderr):  # a thread of Ray prints which nodes are lost
            ready, _ = self.ray.wait([*self.jobs], num_returns=1, timeout=seconds)
        ended = []
        for reference in ready:
            job = self.jobs.pop(reference)
            log = log_file(self.folder, job.id)
            try:
                code, reason = self.ray.get(reference)
            except self.ray.exceptions.TaskCancelledError:
                code, reason = EXIT_AGAIN, "cancelled"
                write_state(log, JobState("ray", state="stopped"))
            except self.ray.exceptions.RayError as error:
                code, reason = EXIT_FAILED, f"lost by Ray: {str(error).strip().splitlines()[0]}"
            ended.append(JobEnd(job, code, reason, log))
        return ended

    def stop(self) -> None:
        """Cancel waiting tasks; interrupt running tasks, which then ask their jobs to stop."""
        for reference in self.jobs:
            self.ray.cancel(reference, force=False)


def _on_node(log: str) -> tuple[int, str]:
    return Worker().perform(Path(log))
