"""Estimate the cost of a sweep's jobs, and their time on this machine or on a measured GPU.

A few steps of one encoding are timed here, or steps of several were measured on the GPU; the time
of every job is extrapolated by its FLOPs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from tape_arith.arith.decoders.build import as_user_error, blueprint, decoder_for
from tape_arith.arith.decoders.cost import training_flops_a_token, training_tokens
from tape_arith.arith.errors import USER_CODE_ERRORS, describe_error
from tape_arith.arith.registry.names import Encoding, Name
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import Compute
from tape_arith.arith.runs.request import Request
from tape_arith.arith.sweeps.engines import Engine
from tape_arith.arith.sweeps.gpus import MeasuredGpu, measured_gpu
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
        """Estimate what the jobs cost, as `forecast` does.

        on  a GPU with measured steps, as in "h200": one per slot; None: steps are timed here

        Raises UsageError if nothing was measured on that GPU.
        """
        gpu = None if on is None else measured_gpu(on)
        return forecast(self.sweep, self.jobs, self.slots, self.remote is None, gpu)

    def preview(self) -> str:
        """Return how the jobs that could start now would be sent, if the engine can say it."""
        done = done_jobs(self.jobs)
        left = [job for job in self.jobs if job.id not in done]
        ready = [job.kind for job in left if done.issuperset(job.depends)]
        preview = getattr(self.remote, "preview", None)
        if not (preview and ready):
            return ""
        kinds = ", ".join(dict.fromkeys(ready))
        later = ", and further arrays follow as these end" * (len(left) > len(ready))
        runs, now = len(self.requests), len(ready)
        return (
            f"{preview(now)}\n# {runs} runs are {len(self.jobs)} jobs, trainings and scorings: "
            f"this array has the {now} that can start now ({kinds}){later}."
        )


def forecast(
    sweep: Sweep, jobs: Sequence[Job], slots: Slots, here: bool, gpu: MeasuredGpu | None = None
) -> dict[str, Any]:
    """Estimate what the jobs of a sweep cost, and how long they take on this machine or on GPUs.

    here  whether they run on this machine; if not, nothing is timed
    gpu   the GPU of each slot, in place of this machine; seconds are None for what was not measured

    The keys are stable, because `sweep --dry-run --json` prints them.
    """
    done = done_jobs(jobs)
    threads = slots.threads if slots.count > 1 else None  # one slot is this process
    to_do = [job for job in jobs if job.id not in done]
    if gpu is None:
        probe: object
        probe, seconds_a_flop = _time_first(to_do if here else [], threads)
        rates: Sequence[float | None] = [seconds_a_flop] * len(jobs)
    else:
        probe, requests = gpu.preset, (job.request for job in jobs)
        rates = [gpu.seconds_per_flop(each.name.encoding, each.config) for each in requests]
    rows: list[dict[str, Any]] = []
    for job, rate in zip(jobs, rates, strict=True):
        tokens, flops = job.cost()
        state, left_flops = ("done", 0.0) if job.id in done else ("to do", flops)
        seconds = None if rate is None and left_flops else left_flops * (rate or 0.0)
        request = job.request
        row = {"id": job.id, "kind": job.kind, "encoding": str(request.name), "seed": request.seed}
        row |= request.settings
        rows.append(row | {"state": state, "tokens": tokens, "flops": flops, "seconds": seconds})
    waiting = [row for row in rows if row["state"] == "to do"]
    left = {key: sum(row[key] or 0 for row in waiting) for key in ("tokens", "flops", "seconds")}
    if gpu is None:
        # More slots than GPUs (without GPUs: than cores) share them, and so save no time.
        left["seconds"] /= min(slots.count, len(visible_gpus()) or usable_threads())
    else:  # a run has one GPU
        run_seconds = dict.fromkeys((job.request.run.path for job in jobs), 0.0)
        for job, costs in zip(jobs, rows, strict=True):
            run_seconds[job.request.run.path] += costs["seconds"] or 0.0
        left["seconds"] = max(left["seconds"] / slots.count, *run_seconds.values())
    not_measured = dict.fromkeys(row["encoding"] for row in waiting if row["seconds"] is None)
    # A run keeps its final weights, and its weights before the cool-down with their two moments.
    trained = [job.request for job in jobs if job.kind == "train"]
    sizes = [blueprint(each.config, Name(each.name.encoding)).num_parameters() for each in trained]
    return {
        "schema": 1,
        "sweep": sweep.name,
        "summary": sweep.summary,
        "preset": ",".join(sweep.presets),
        "varied": sweep.varied,
        "slots": slots.count,
        "gpu": gpu and gpu.name,
        "jobs": rows,
        "left": {**left, "jobs": len(to_do)},
        "not_measured": list(not_measured),
        "weights_bytes": 4 * (1 + 3) * sum(sizes),
        "probe": None if probe is None else f"steps of {probe}",
    }


def _time_first(jobs: Sequence[Job], threads: int | None) -> tuple[Encoding | None, float]:
    """Time the first encoding whose steps do not fail; return it with its seconds per FLOP.

    An encoding that fails is skipped, because its own jobs will report the error.
    """
    first: dict[Encoding, Request] = {}
    for job in jobs:
        first.setdefault(job.request.name.encoding, job.request)
    for encoding, request in first.items():
        say(f"timing a few steps of {encoding} for the estimate")
        try:
            return encoding, seconds_per_flop(request, jobs[0].options.compute, threads)
        except USER_CODE_ERRORS as error:
            reason = as_user_error(error, encoding) or describe_error(error)
            say(f"note: that cannot be timed: {reason}")
    return None, 0.0


def seconds_per_flop(request: Request, compute: Compute, threads: int | None = None) -> float:
    """Measure seconds per FLOP on this machine: the median over a few steps of a training.

    `threads` is the number of CPU threads that its job will have.
    """
    config, hardware = request.config, detect(*compute)
    if threads is not None and hardware.device == "cpu":
        hardware = replace(hardware, threads=threads)
    name = Name(request.name.encoding)
    flops = training_flops_a_token(name, config) * training_tokens(config) / config.steps
    if hardware.device == "cpu":
        config, share = timed_config(config, flops)
        flops *= share
    runner = Runner(decoder_for(config, name, seed=0), hardware)
    trainer = Trainer(runner, config.bucket(0), config, curves=False)
    times: list[float] = []
    while len(times) < 3 or (len(times) < _STEPS and sum(times) < _SECONDS):
        times.append(trainer.timed_step())
    return median(times[2 * len(times) // 5 :]) / flops


def timed_config(config: Config, step_flops: float) -> tuple[Config, float]:
    """Return a config whose batch is small enough to time, and its share of the whole batch."""
    share = min(1.0, _MOST_TIMED / step_flops)
    batch_size = max(1, int(config.batch_size * share))
    return replace(config, batch_size=batch_size), batch_size / config.batch_size


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
        missing = "; not measured at these sizes: " * bool(forecast["not_measured"])
        missing += ", ".join(forecast["not_measured"])
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
