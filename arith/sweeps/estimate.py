"""What work costs, and how long it would take on this machine.

A preset is estimated from the rate of plain matrix products, a sweep from a few timed steps.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.build import (
    as_user_error,
    blueprint,
    decoder_for,
    resolve_attention,
    training_bucket,
    user_errors,
)
from tape_arith.arith.runs.record import load_preset
from tape_arith.arith.sweeps.engines.local import cores_per_slot, visible_gpus
from tape_arith.arith.sweeps.jobs import Job, done_jobs, grid_tokens
from tape_arith.arith.sweeps.sweep import Sweep
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.flops import causal, forward_flops, matmuls
from tape_arith.arith.training.schedule import Schedule
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.locate import USER_CODE_ERRORS, describe_error
from tape_arith.models.names.parse import Encoding, Name

PROBE_SECONDS = 0.3
# The share of the rate of plain products that training reaches at best.
EFFICIENCY = 0.5
PROBE_PROBLEMS = 2_048
WARMUP, TIMED = (8, 2.0), (12, 3.0)
"""Steps of a probe, or seconds: the first steps of a process take up to twice as long as later
ones, because all its memory is new."""
LONGEST_PROBE_STEP = 2.0
"""Seconds of a step of the probe at the rate of plain products; larger batches are cut."""


def training_flops(config: Config) -> float:
    """Useful FLOPs of a run: three passes of two FLOPs a weight and real token.

    An answer counts as long as its longer operand; attention adds little at these lengths.
    """
    longest = 2 * config.trained_digits / 3  # mean of the larger of two uniform lengths
    tokens = (config.trained_digits + 1) + longest + 3.5
    width = config.num_heads * config.head_dim
    weights = config.num_layers * config.hidden_size * (4 * width + 3 * config.mlp_size)
    return 6.0 * weights * tokens * config.batch_size * config.steps


def product_rate(hardware: Hardware, size: int = 1024) -> float:
    """Measure FLOP/s of square matrix products in the hardware's fast type; of a CPU, of the one
    thread that `detect` leaves torch."""
    a = torch.ones(size, size, device=hardware.device, dtype=hardware.dtype)
    a @ a
    if hardware.device == "cuda":
        torch.cuda.synchronize()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < PROBE_SECONDS:
        a @ a
        if hardware.device == "cuda":
            torch.cuda.synchronize()
        count += 1
    return 2.0 * size**3 * count / (time.perf_counter() - began)


def training_seconds(config: Config, hardware: Hardware) -> float:
    """A lower bound of the time that training takes here, on all threads."""
    rate = product_rate(hardware) * hardware.threads
    return training_flops(config) / (EFFICIENCY * rate)


@dataclass(frozen=True)
class Cost:
    """Tokens that a job reads, and FLOPs of the matrix products over them."""

    tokens: int
    flops: float


def cost(job: Job) -> Cost:
    """The cost of a whole job, however much of it is done; 0 for one that only writes files.

    Raises Failure if a user's encoding cannot tell its products.
    """
    config, encoding = job.run.config, job.run.name.encoding
    if job.kind == "train":
        lengths = training_bucket(config, 0).problems(0, PROBE_PROBLEMS).lengths - 1
        flops = 3 * _forward_flops(config, encoding, tuple(lengths.tolist()))
        count = config.steps * config.batch_size / PROBE_PROBLEMS
        return Cost(int(lengths.sum() * count), flops * count)
    if job.kind == "score":
        split = job.evaluation_set.split
        bucket = Bucket(config.task, config.tested_digits, config.evaluation_seed, split)
        lengths = bucket.problems(0, bucket.num_pairs).lengths - 1
        flops = _forward_flops(config, encoding, tuple(lengths.tolist()))
        tokens = grid_tokens(config, split)
        return Cost(tokens, flops * config.problems_per_cell)
    return Cost(0, 0.0)


@lru_cache(maxsize=512)
def _forward_flops(config: Config, encoding: Encoding, lengths: tuple[int, ...]) -> float:
    """FLOPs of sequences of these lengths, with those of the encoding's own products."""
    decoder = blueprint(config, Name(encoding))
    with user_errors(encoding):
        return float(forward_flops(matmuls(decoder.config, decoder.pe, causal(lengths))))


def parameters(config: Config, name: Name) -> int:
    """The number of parameters of a decoder."""
    return blueprint(config, Name(name.encoding)).num_parameters()


def _weights_bytes(jobs: Sequence[Job]) -> int:
    """Bytes of the checkpoints that all trained runs keep: the final weights, and those before the
    cool-down with two moments each."""
    trained = [job for job in jobs if job.kind == "train"]
    return sum(4 * (1 + 3) * parameters(job.run.config, job.run.name) for job in trained)


def seconds_per_flop(job: Job, threads: int | None = None) -> float:
    """Measure the seconds of a FLOP here: the median over a few steps of the run of `job`.

    Batches are small enough to be short. `threads` are those of a CPU that the job will have.
    """
    config, name, hardware = job.run.config, job.run.name, detect(*job.options.compute)
    if threads is not None and hardware.device == "cpu":
        hardware = replace(hardware, threads=threads)
    long = training_seconds(config, hardware) / config.steps / LONGEST_PROBE_STEP
    config = replace(config, batch_size=max(1, int(config.batch_size / max(long, 1.0))))
    decoder = decoder_for(config, replace(name, extrapolation=None), seed=0)
    bucket = training_bucket(config, 0)
    schedule = Schedule(config.steps, 0, 0)
    hardware = resolve_attention(hardware, decoder.needs)
    trainer = Trainer(decoder, bucket, bucket, config, schedule, hardware, curves=False)
    _step_seconds(trainer, *WARMUP)  # compilation and caches
    seconds = median(_step_seconds(trainer, *TIMED))
    run = replace(job.run, config=replace(config, steps=1))
    return seconds / cost(replace(job, kind="train", run=run)).flops


def _step_seconds(trainer: Trainer, max_steps: int, max_seconds: float) -> list[float]:
    """Time up to `max_steps` steps, the last of which ends after about `max_seconds`."""
    began = time.perf_counter()
    times: list[float] = []
    while not times or (len(times) < max_steps and time.perf_counter() - began < max_seconds):
        before = time.perf_counter()
        float(trainer.train_step()[1])  # waits for the device
        times.append(time.perf_counter() - before)
    return times


def forecast(sweep: Sweep, jobs: Sequence[Job], slots: int, here: bool) -> dict[str, Any]:
    """Estimate what the jobs of a sweep cost, and how long they take if they run `here`.

    Keys are stable: it is what `sweep --dry-run --json` prints.
    """
    done = done_jobs(jobs)
    left = [job for job in jobs if job.id not in done]
    threads = cores_per_slot(slots) if slots > 1 else None  # one slot has what this process has
    timed, rate = _time_first(left if here else [], threads)
    entries: list[dict[str, Any]] = []
    reported: set[str] = set()
    for job in jobs:
        try:
            price = cost(job)
        except Failure as error:  # of one encoding, whose jobs will say more
            if str(error) not in reported:
                say(f"note: {job.run.name} has no price: {error}")
            reported.add(str(error))
            price = Cost(0, 0.0)
        entry: dict[str, Any] = {"id": job.id, "kind": job.kind, "encoding": str(job.run.name)}
        entry |= {"seed": job.run.seed, "state": "done" if job.id in done else "to do"}
        seconds = 0.0 if job.id in done else round(price.flops * rate, 1)
        entries.append({**entry, **asdict(price), "seconds": seconds})
    to_do = [entry for entry in entries if entry["state"] == "to do"]
    # Slots beyond the GPUs, or beyond the cores without GPUs, wait for each other.
    side_by_side = min(slots, len(visible_gpus()) or os.cpu_count() or 1)
    totals = {key: sum(entry[key] for entry in to_do) for key in ("tokens", "flops", "seconds")}
    return {
        "schema": 1,
        "sweep": sweep.name,
        "summary": sweep.summary,
        "preset": sweep.preset,
        "slots": slots,
        "jobs": entries,
        "left": {
            **totals,
            "jobs": len(to_do),
            "seconds": round(totals["seconds"] / side_by_side, 1),
        },
        "weights_bytes": _weights_bytes(jobs),
        "probe": None if timed is None else f"steps of {timed.run.name.encoding}",
    }


def _time_first(jobs: Sequence[Job], threads: int | None) -> tuple[Job | None, float]:
    """Time the first encoding whose steps do not fail; return its job and the seconds of a FLOP.

    An encoding that fails is left to its own jobs, so that the others run.
    """
    by_encoding: dict[Encoding, Job] = {}
    for job in jobs:
        if job.kind in ("train", "score"):
            by_encoding.setdefault(job.run.name.encoding, job)
    for encoding, job in by_encoding.items():
        say(f"timing a few steps of {job.run.name} for the estimate")
        try:
            return job, seconds_per_flop(job, threads)
        except USER_CODE_ERRORS as error:
            reason = as_user_error(error, encoding) or describe_error(error)
            say(f"note: that cannot be timed: {reason}")
    return None, 0.0


def forecast_text(forecast: Mapping[str, Any]) -> str:
    """The forecast for people: a line an encoding, and the total."""
    jobs = forecast["jobs"]
    names = dict.fromkeys(entry["encoding"] for entry in jobs)
    width = max(len(name) for name in names)
    lines = [f"{forecast['sweep']}: {forecast['summary']}", ""]
    lines.append(f"{'encoding':<{width}}  jobs done     tokens left  FLOPs left     time left")
    for name in names:
        own = [entry for entry in jobs if entry["encoding"] == name]
        left = [entry for entry in own if entry["state"] == "to do"]
        done = f"{len(own) - len(left)} of {len(own)}"
        tokens, flops, seconds = (
            sum(entry[key] for entry in left) for key in ("tokens", "flops", "seconds")
        )
        duration = format_duration(seconds) if left and forecast["probe"] else "-"
        lines.append(f"{name:<{width}}  {done:>9}  {tokens:>14,}  {flops:>10.2g}  {duration:>12}")
    return "\n".join([*lines, "", forecast_total(forecast)])


def forecast_total(forecast: Mapping[str, Any]) -> str:
    """What is left to do, in a line."""
    left, count, slots = forecast["left"], len(forecast["jobs"]), forecast["slots"]
    if not left["jobs"]:
        return f"all {count} jobs are done"
    work = f"{left['tokens']:,} tokens, {left['flops']:.2g} FLOPs"
    duration = " (nothing was timed here)"
    if forecast["probe"] is not None:
        duration = (
            f", about {format_duration(left['seconds'])} with {slots} slot{'s' * (slots > 1)} here "
            f"(an estimate: {forecast['probe']} were timed, the rest goes by FLOPs)"
        )
    weights = f"{forecast['weights_bytes'] / 1e9:.2g} GB of weights"
    return f"{left['jobs']} of {count} jobs to do: {work}{duration}; {weights}"


def default_preset() -> tuple[str, str]:
    """The preset that suits this machine, and a line that says why."""
    hardware = detect()
    if hardware.device == "cuda":
        return "paper-40", f"preset paper-40: there is a GPU ({hardware.name})"
    duration = format_duration(training_seconds(load_preset("paper-40"), hardware))
    return "mini", (
        f"preset mini: there is no GPU, and paper-40 would take at least {duration} of training "
        "here (--preset chooses)"
    )


def format_duration(seconds: float) -> str:
    """A duration in the unit that fits.

    >>> format_duration(5400)
    '1.5 hours'
    """
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
