"""Small trainings, and comparisons of their weights, metrics and files."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config, Schedule
from tape_arith.arith.runs.options import DEFAULTS, TrainOptions
from tape_arith.arith.runs.preset import preset_of
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training.batches import Source
from tape_arith.arith.training.session import train_run
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner

# Weights, and lines of metrics without what a clock says.
Outcome = tuple[dict[str, Tensor], list[dict[str, Any]]]
TIMING = ("seconds", "tokens_per_second")
SMALL = Config(
    task="addition",
    trained_digits=2,
    tested_digits=3,
    num_problems=100_000,
    num_layers=2,
    hidden_size=16,
    num_heads=2,
    head_dim=8,
    mlp_size=16,
    batch_size=16,
    steps=30,
    learning_rate=3e-3,
    warmup=0.1,
    cooldown=0.2,
    beta1=0.9,
    beta2=0.98,
    epsilon=1e-12,
    weight_decay=0.01,
    clip=0.5,
    groups=1,
    problems_per_cell=5,
    evaluation_seed=0,
)
KINDS = (
    *("learned", "abacus", "rope", "fire", "rand-rope", "canon", "cope", "tape", "tape-heads"),
    "aug-rope:per=step",
)
"""One encoding for each way to act: tables, turns, biases, draws, neighbours, contents, states."""


def kinds_first(names: Iterable[str]) -> list[Any]:
    """Return the parameters of a test of each encoding, slow but for one of each kind."""
    return [pytest.param(n, marks=() if n in KINDS else pytest.mark.slow) for n in names]


def small(**changes: Any) -> Config:
    return replace(SMALL, **changes)


def cpu(dtype: torch.dtype = torch.float32, threads: int = 1) -> Hardware:
    return Hardware("cpu", dtype, threads)


def trainer(
    config: Config,
    name: str = "rope",
    *,
    seed: int = 0,
    schedule: Schedule | None = None,
    hardware: Hardware | None = None,
    source: Source | None = None,
) -> Trainer:
    """Make a trainer as a run does."""
    bucket = Bucket(config.task, config.trained_digits, seed, "train")
    return Trainer(
        Runner(decoder_for(config, parse(name), seed), hardware or cpu()),
        bucket,
        config,
        source=source,
        schedule=schedule,
    )


def train(
    trainer: Trainer,
    log: Callable[[Any], None] = lambda metrics: None,
    *,
    log_every: int = 5,
    evaluate_every: int = 10,
) -> Trainer:
    """Train to the end of the schedule, logging and evaluating more often than a run."""
    vars(trainer).update(log_every=log_every, evaluate_every=evaluate_every)
    while not trainer.done:
        line = trainer.advance()
        if line is not None:
            log(line)
    trainer.check_weights()
    return trainer


def run(
    root: Path,
    config: Config = SMALL,
    name: str = "rope",
    seed: int = 0,
    *,
    stop: int = 0,
    options: TrainOptions = DEFAULTS,
    **more: Any,
) -> Run:
    """Train a run below `root`, for `stop` steps if given."""
    more = {"should_stop": stop_after(stop) if stop else never, **more}
    planned = Request(parse(name), seed, preset_of("mini", config.task), config, root)
    return train_run(planned, options, **more)


def perturbed(decoder: Decoder, size: float = 0.2) -> Decoder:
    """Move every parameter off its start, so that no gradient is zero by construction."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in decoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(size * noise)
    return decoder


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {f"model/{name}": p.detach() for name, p in trainer.decoder.named_parameters()}


def final_weights(folder: Run) -> dict[str, Tensor]:
    return checkpoint.load(folder.final, "cpu")[0]


def assert_same_bits(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        assert torch.equal(tensor, expected[name]), f"{name} differs"


def untimed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of metrics.jsonl without their times."""
    return [{key: line[key] for key in line if key not in TIMING} for line in lines]


def stop_after(steps: int) -> Callable[[], bool]:
    """Return a condition, asked after every step, that holds from the call number `steps`."""
    calls = count(1)
    return lambda: next(calls) >= steps


def never() -> bool:
    return False


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and time of every file below `path`."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(f.relative_to(path)): (f.read_bytes(), f.stat().st_mtime_ns) for f in files}
