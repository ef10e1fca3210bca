"""What work costs, and how long it would take on this machine: a preset from the rate of plain
matrix products, a sweep from a few steps that are taken and timed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.build import blueprint, decoder_for, resolve_attention, training_bucket
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.runs.user_encodings import user_errors
from tape_arith.arith.sweeps.jobs import Job, grid_tokens
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.flops import causal, forward_flops, matmuls
from tape_arith.arith.training.schedule import Schedule
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import Encoding, Name

PROBE_SECONDS = 0.3
# What training reaches of the rate of plain products, at best; an estimate says "at least".
EFFICIENCY = 0.5
PROBE_PROBLEMS = 2_048
WARMUP, TIMED = (8, 2.0), (12, 3.0)
"""So many steps of a probe, or as many as end within so many seconds: the first of a process take
up to twice as long as those after them, for all its memory is new to it."""
LONGEST_PROBE_STEP = 2.0
"""Seconds that a step of the probe may take, on the machine's plain rate; a larger batch is cut."""


def training_flops(config: Config) -> float:
    """Useful FLOPs of a run: three passes of two FLOPs a weight and real token, answer lengths
    taken as those of the longer operand; attention adds little at these lengths."""
    longest = 2 * config.trained_digits / 3  # mean of the larger of two uniform lengths
    tokens = (config.trained_digits + 1) + longest + 3.5
    width = config.num_heads * config.head_dim
    weights = config.num_layers * config.hidden_size * (4 * width + 3 * config.mlp_size)
    return 6.0 * weights * tokens * config.batch_size * config.steps


def product_rate(hardware: Hardware, size: int = 1024) -> float:
    """FLOP/s of square matrix products in the hardware's fast type, measured; of one thread on a
    CPU, where `detect` leaves torch no more."""
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
    """At least how long training would take here, on all threads."""
    rate = product_rate(hardware) * hardware.threads
    return training_flops(config) / (EFFICIENCY * rate)


@dataclass(frozen=True)
class Cost:
    """Tokens that a job reads, and FLOPs of the matrix products over them."""

    tokens: int
    flops: float


def cost(job: Job) -> Cost:
    """Of a whole job, however much of it is done; nothing for what only writes files. Errors:
    Failure where somebody else's encoding cannot tell its products."""
    config, name = job.run.config, job.run.name
    if job.kind == "train":
        problems = training_bucket(config, 0).problems(0, PROBE_PROBLEMS).lengths - 1
        flops = 3 * _forward_flops(config, name.encoding, tuple(problems.tolist()))
        count = config.steps * config.batch_size / PROBE_PROBLEMS
        return Cost(int(problems.sum() * count), flops * count)
    if job.kind == "score":
        bucket = Bucket(
            config.task, config.tested_digits, config.evaluation_seed, job.evaluation_set.split
        )
        lengths = bucket.problems(0, bucket.num_pairs).lengths - 1
        flops = _forward_flops(config, name.encoding, tuple(lengths.tolist()))
        tokens = grid_tokens(config, job.evaluation_set.split)
        return Cost(tokens, flops * config.problems_per_cell)
    return Cost(0, 0.0)


@lru_cache(maxsize=512)
def _forward_flops(config: Config, encoding: Encoding, lengths: tuple[int, ...]) -> float:
    """Of sequences so long, those of the encoding's own products included."""
    decoder = blueprint(config, Name(encoding)).decoder
    with user_errors(encoding):
        return float(forward_flops(matmuls(decoder.config, decoder.pe, causal(lengths))))


def kept_bytes(jobs: Sequence[Job]) -> int:
    """What the weights of all trained runs take on the disk: at the end of training, and those
    before the cool-down with the two moments of each."""
    trained = [job for job in jobs if job.kind == "train"]
    return sum(4 * (1 + 3) * parameters(job.run.config, job.run.name) for job in trained)


def parameters(config: Config, name: Name) -> int:
    return blueprint(config, Name(name.encoding)).num_parameters


def seconds_a_flop(job: Job, threads: int | None = None) -> float:
    """Measured here: the median of a few steps of the run of `job`, in batches small enough to be
    short, on so many threads of a CPU as a job will have."""
    config, name, hardware = job.run.config, job.run.name, detect(job.how.compute)
    if threads is not None and hardware.device == "cpu":
        hardware = replace(hardware, threads=threads)
    long = training_seconds(config, hardware) / config.steps / LONGEST_PROBE_STEP
    batch = max(1, int(config.batch_size / max(long, 1.0)))
    config = replace(config, batch_size=batch)
    decoder = decoder_for(config, replace(name, extrapolation=None), seed=0)
    bucket = training_bucket(config, 0)
    schedule = Schedule(config.steps, 0, 0)
    where = resolve_attention(hardware, decoder.needs)
    trainer = Trainer(decoder, bucket, bucket, config, schedule, where, curves=False)
    _steps(trainer, *WARMUP)  # what is compiled or kept comes about here
    seconds = median(_steps(trainer, *TIMED))
    run = replace(job.run, config=replace(config, steps=1))
    return seconds / cost(replace(job, kind="train", run=run)).flops


def _steps(trainer: Trainer, most: int, seconds: float) -> list[float]:
    """How long each of up to `most` steps took, the last of which ends after about `seconds`."""
    began = time.perf_counter()
    taken: list[float] = []
    while not taken or (len(taken) < most and time.perf_counter() - began < seconds):
        before = time.perf_counter()
        float(trainer.train_step()[1])  # waits for the device
        taken.append(time.perf_counter() - before)
    return taken


def default_preset() -> tuple[str, str]:
    """The preset that suits this machine, and a line that says which and why."""
    hardware = detect()
    if hardware.device == "cuda":
        return "paper-40", f"preset paper-40: there is a GPU ({hardware.name})"
    duration = in_words(training_seconds(load_preset("paper-40"), hardware))
    return "mini", (
        f"preset mini: there is no GPU, and paper-40 would take at least {duration} of training "
        "here (--preset chooses)"
    )


def in_words(seconds: float) -> str:
    """A duration in the unit that fits.

    >>> in_words(5400)
    '1.5 hours'
    """
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
