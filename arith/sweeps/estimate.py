"""Estimate the cost of a sweep's jobs, and their time on this machine or on a measured GPU.

A few steps of one encoding are timed here, or steps of several were measured on the GPU; the time
of every job is extrapolated by its FLOPs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from tape_arith.arith.decoders.build import as_user_error, blueprint, decoder_for
from tape_arith.arith.decoders.cost import training_flops
from tape_arith.arith.errors import USER_CODE_ERRORS, describe_error
from tape_arith.arith.registry.names import Encoding, Name
from tape_arith.arith.runs.options import Compute
from tape_arith.arith.runs.request import Request
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.gpus import measured_gpu
from tape_arith.arith.sweeps.jobs import Job, done_jobs
from tape_arith.arith.sweeps.slots import Slots, usable_threads, visible_gpus
from tape_arith.arith.sweeps.sweep import Sweep
from tape_arith.arith.terminal import duration, say
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner

_STEPS, _SECONDS = 20, 5.0
"""Maximum steps of a probe, and its approximate seconds. The first two fifths of the steps do not
count: a process is up to twice as slow at first, because all its memory is new."""
_MOST_TIMED = 1e11
"""Maximum FLOPs of a step that is timed on a CPU, where it takes about a second."""


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep and where they run."""

    sweep: Sweep
    out: Path
    requests: Sequence[Request]
    jobs: Sequence[Job]
    slots: Slots
    remote: Engine | None
    """The engine that runs jobs on other machines; None: they run here."""

    def costs(self, on: str | None = None) -> dict[str, Any]:
        """Estimate what the jobs cost, and how long they take on this machine or on GPUs.

        on  a GPU with measured steps, as in "h200": one per slot; seconds are None for what was
            not measured. None: steps are timed here, if the jobs run on this machine

        The keys are stable, because `sweep --dry-run --json` prints them. Raises UsageError if
        nothing was measured on that GPU.
        """
        gpu = None if on is None else measured_gpu(on)
        done = done_jobs(self.jobs)
        to_do = [job for job in self.jobs if job.id not in done]
        if gpu is None:
            probe, rate = self._time_first(to_do if self.remote is None else [])
            rates: Sequence[float | None] = [rate] * len(self.jobs)
        else:
            probe, requests = gpu.preset, (job.request for job in self.jobs)
            rates = [gpu.seconds_per_flop(each.name.encoding, each.config) for each in requests]
        rows = [_row(job, job.id in done, rate) for job, rate in zip(self.jobs, rates, strict=True)]
        waiting = [row for row in rows if row["state"] == "to do"]
        keys = ("tokens", "flops", "seconds")
        left = {key: sum(row[key] or 0 for row in waiting) for key in keys}
        if gpu is None:
            # More slots than GPUs (without GPUs: than cores) share them, and so save no time.
            left["seconds"] /= min(self.slots.count, len(visible_gpus()) or usable_threads())
        else:  # a run has one GPU
            run_seconds = defaultdict[Path, float](float)
            for job, row in zip(self.jobs, rows, strict=True):
                run_seconds[job.folder] += row["seconds"] or 0.0
            left["seconds"] = max(left["seconds"] / self.slots.count, *run_seconds.values())
        not_measured = dict.fromkeys(row["encoding"] for row in waiting if row["seconds"] is None)
        return {
            "schema": 1,
            "sweep": self.sweep.name,
            "summary": self.sweep.summary,
            "preset": ",".join(self.sweep.presets),
            "varied": self.sweep.varied,
            "slots": self.slots.count,
            "gpu": gpu and gpu.name,
            "jobs": rows,
            "left": {**left, "jobs": len(to_do)},
            "not_measured": list(not_measured),
            "weights_bytes": sum(map(_weights_bytes, self.jobs)),
            "probe": probe and f"steps of {probe}",
        }

    def preview(self) -> str:
        """Return how the jobs that could start now would be sent, if the engine can say it."""
        done = done_jobs(self.jobs)
        left = [job for job in self.jobs if job.id not in done]
        ready = [job.kind for job in left if done.issuperset(job.depends)]
        batch = self.remote.preview(len(ready)) if self.remote and ready else ""
        if not batch:
            return ""
        kinds = ", ".join(dict.fromkeys(ready))
        later = ", and further arrays follow as these end" * (len(left) > len(ready))
        return (
            f"{batch}\n# {len(self.requests)} runs are {len(self.jobs)} jobs, trainings and "
            f"scorings: this array has the {len(ready)} that can start now ({kinds}){later}."
        )

    def _time_first(self, jobs: Sequence[Job]) -> tuple[str | None, float]:
        """Time the first encoding whose steps do not fail; return it with its seconds per FLOP.

        An encoding that fails is skipped, because its own jobs will report the error.
        """
        threads = self.slots.threads if self.slots.count > 1 else None  # one slot is this process
        first: dict[Encoding, Request] = {}
        for job in jobs:
            first.setdefault(job.request.name.encoding, job.request)
        for encoding, request in first.items():
            say(f"timing a few steps of {encoding} for the estimate")
            try:
                return str(encoding), seconds_per_flop(request, jobs[0].options.compute, threads)
            except USER_CODE_ERRORS as error:
                reason = as_user_error(error, encoding) or describe_error(error)
                say(f"note: that cannot be timed: {reason}")
        return None, 0.0


def _row(job: Job, is_done: bool, rate: float | None) -> dict[str, Any]:
    """Return what a job is and costs; `rate` is in seconds per FLOP, None if not measured."""
    tokens, flops = job.cost()
    flops_left = 0.0 if is_done else flops
    return {
        "id": job.id,
        "kind": job.kind,
        "encoding": str(job.request.name),
        "seed": job.request.seed,
        **job.request.settings,
        "state": "done" if is_done else "to do",
        "tokens": tokens,
        "flops": flops,
        "seconds": None if rate is None and flops_left else flops_left * (rate or 0.0),
    }


def _weights_bytes(job: Job) -> int:
    """Count the bytes of the final weights, and of those before the cool-down with two moments."""
    if job.kind != "train":
        return 0
    request = job.request
    return 4 * (1 + 3) * blueprint(request.config, Name(request.name.encoding)).num_parameters()


def seconds_per_flop(request: Request, compute: Compute, threads: int | None = None) -> float:
    """Measure seconds per FLOP on this machine: the median over a few steps of a training.

    `threads` is the number of CPU threads that its job will have.
    """
    config, hardware = request.config, detect(*compute)
    if threads is not None and hardware.device == "cpu":
        hardware = replace(hardware, threads=threads)
    name = Name(request.name.encoding)
    flops = training_flops(config, name) / config.steps
    if hardware.device == "cpu":  # a part of the batch, if all of it takes too long
        batch_size = max(1, int(config.batch_size * min(1.0, _MOST_TIMED / flops)))
        flops *= batch_size / config.batch_size
        config = replace(config, batch_size=batch_size)
    runner = Runner(decoder_for(config, name, seed=0), hardware)
    trainer = Trainer(runner, config.bucket(0), config, curves=False)
    times: list[float] = []
    while len(times) < 3 or (len(times) < _STEPS and sum(times) < _SECONDS):
        times.append(trainer.timed_step())
    return median(times[2 * len(times) // 5 :]) / flops


def forecast_text(forecast: Mapping[str, Any]) -> str:
    """Format the remaining work for people, per encoding and combination of settings."""
    jobs = pd.DataFrame(forecast["jobs"])
    keys = ["encoding", *forecast["varied"]]
    groups = jobs[jobs["state"] == "to do"].assign(jobs=1).groupby(keys, sort=False)
    sums = groups[["jobs", "tokens", "flops"]].sum()
    sums["seconds"] = groups["seconds"].agg(lambda each: each.astype(float).sum(skipna=False))
    sums = sums.reset_index()
    sums = sums.rename(columns={"jobs": "jobs left", "flops": "FLOPs", "seconds": "time"})
    text = {"tokens": "{:,}".format, "FLOPs": "{:.2g}".format, "time": duration}
    text |= dict.fromkeys(forecast["varied"], str)
    if forecast["probe"] is None:
        sums = sums.drop(columns="time")
    table = sums.to_string(index=False, formatters=text, na_rep="not measured") + "\n\n"
    title = ": ".join(filter(None, (forecast["sweep"], forecast["summary"])))
    return f"{title}\n\n{'' if sums.empty else table}{forecast_total(forecast)}"


def forecast_total(forecast: Mapping[str, Any]) -> str:
    """Summarize the remaining work in one line."""
    left, count, slots = forecast["left"], len(forecast["jobs"]), forecast["slots"]
    if not left["jobs"]:
        return f"all {count} jobs are done"
    time = " (nothing was timed here)"
    if gpu := forecast["gpu"]:
        hours = f"{duration(left['seconds'])} on {slots} {gpu}" if left["seconds"] else "no time"
        missing = ""
        if unknown := forecast["not_measured"]:
            encodings = {row["encoding"] for row in forecast["jobs"] if row["state"] == "to do"}
            hours += f" for {len(encodings) - len(unknown)} of {len(encodings)} encodings"
            missing = f"; the others were not measured at these sizes: {', '.join(unknown)}"
        time = (
            f", {hours} (an estimate: {forecast['probe']} were measured on {gpu}, the rest goes by "
            f"FLOPs of the same encoding{missing})"
        )
    elif forecast["probe"] is not None:
        time = (
            f", about {duration(left['seconds'])} with {slots} slot{'s' * (slots > 1)} here "
            f"(an estimate: {forecast['probe']} were timed, the rest goes by FLOPs)"
        )
    return (
        f"{left['jobs']} of {count} jobs to do: {left['tokens']:,} tokens, {left['flops']:.2g} "
        f"FLOPs{time}; {forecast['weights_bytes'] / 1e9:.2g} GB of weights"
    )
