"""Choose the number of parallel jobs on this machine, and the CPU threads of each.

Numbers do not depend on it: a group of rows always has one thread, and groups are summed in order.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch

from tape_arith.arith.decoders.build import blueprint
from tape_arith.arith.decoders.cost import training_flops
from tape_arith.arith.machine import available_memory, usable_cores
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.sweeps.jobs import Job, done_jobs
from tape_arith.arith.terminal import say
from tape_arith.models.hardware import cpu_threads

LEAST_FLOPS = 1e12
"""Least training FLOPs for which a run gets a process of its own: some ten seconds on a core, where
a process takes about three to load torch. A run of `mini` has 1.6e13."""
MOST_FLOPS_A_STEP = 1e12
"""Most training FLOPs of a step for which one core is enough: some ten seconds at 1e11 FLOP/s. A
run that is asked to stop finishes its step first, and schedulers kill it after about 30 seconds.
With longer steps the first result of a sweep would also come after weeks, together with the last.
A step of `mini` has 1.6e10, of `small-20` 6.8e10, of `paper-20` 1.4e13."""


@dataclass(frozen=True)
class Slots:
    """Parallel jobs on this machine: `count` at a time, each with `threads` CPU threads.

    `last` has the threads of the last runs, if these are fewer than `count`.
    """

    count: int
    threads: int
    last: Mapping[Path, int] = field(default_factory=dict)

    def threads_of(self, job: Job) -> int:
        """Return the number of CPU threads of a job."""
        return self.last.get(job.folder, self.threads)


def choose_slots(jobs: Sequence[Job], requested: int | None = None) -> Slots:
    """Choose the slots for the jobs that are not done; `requested` is the user's number.

    By default each GPU has a slot. On a CPU each core has one, unless memory is short or the runs
    are too small or too large for it. Says on stderr what was chosen and why.
    """
    done = done_jobs(jobs)
    to_do = [job for job in jobs if job.id not in done and job.kind != "generate"]
    configs = {job.folder: job.request.config for job in to_do}
    gpus, cores = len(visible_gpus()), usable_threads()
    if requested is not None:
        return _shared(list(configs), requested, cores)
    if len(configs) < 2:
        return Slots(1, cores)
    if gpus:
        count, reason = min(gpus, len(configs)), f"{gpus} GPU{'s' * (gpus > 1)}"
    else:
        count, reason = _fitting(set(configs.values()), min(cores, len(configs)), cores)
    slots = _shared(list(configs), count, cores)
    each = "one thread each" if slots.threads == 1 else f"{slots.threads} threads each"
    order = "one training after another" if count == 1 else f"{count} trainings side by side"
    say(f"{order}, {each} ({reason}); --slots changes it")
    return slots


def _shared(runs: Sequence[Path], count: int, cores: int) -> Slots:
    """Divide the cores among `count` jobs, and among the last runs if these are fewer."""
    left_over = len(runs) % count
    last = runs[len(runs) - left_over :]
    threads = {run: max(1, cores // left_over) for run in last}
    return Slots(count, max(1, cores // count), threads)


def _fitting(configs: Collection[Config], most: int, cores: int) -> tuple[int, str]:
    """Return how many runs of these configs this CPU can train at a time, up to `most`, and why."""
    flops = {config: training_flops(config) for config in configs}
    if most == 1:
        return 1, "1 core"
    if fmean(flops.values()) < LEAST_FLOPS:
        return 1, "they are so short that a process for each would cost more"
    if max(flops[config] / config.steps for config in configs) > MOST_FLOPS_A_STEP:
        return 1, "they are so large that one core would take too long for a step"
    memory = available_memory()
    need = max(map(_memory, configs))
    if memory is not None and memory < most * need:
        free = f"{memory / 1e9:.1f} GB of memory are free, and each needs about {need / 1e9:.1f}"
        return max(1, int(memory // need)), free
    return most, f"{cores} cores"


def _memory(config: Config) -> float:
    """Estimate the bytes of a process that trains on one CPU thread, rather too high.

    Measured with tape: 0.57 GB for `mini`, 0.78 for `small-20`, 1.8 at 8 layers of hidden size 512
    (21 M parameters). That is torch; weights, their gradient and moments; and the activations of
    a group, whose number of tokens is the same for all sizes.
    """
    parameters = blueprint(config, parse("nope")).num_parameters()
    return 0.5e9 + 24 * parameters + 3e5 * config.num_layers * config.loops * config.hidden_size


def usable_threads() -> int:
    """Return the CPU threads that jobs share: --threads, OMP_NUM_THREADS or all cores.

    Never more than the cores that this process may use.
    """
    return max(1, min(cpu_threads(), int(usable_cores())))


def visible_gpus() -> list[str]:
    """List the GPUs that jobs may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number in range(torch.cuda.device_count())]
