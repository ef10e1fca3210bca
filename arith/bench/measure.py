"""The frame of the benchmark: one measured line, how time is taken, what was asked.

A stage is a module of this folder with a function `measure(options)` that yields Measurements as
they come, and TAKES, the options that it takes; the folder is the registry (see stages.py). Every
figure is measured in this run: what was not measured says so, and no formula takes its place.
"""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.training.config import Config
from tape_arith.arith.version import ROOT
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.backends import AttentionChoice
from tape_arith.models.names.parse import Name, parse

Key = TypeVar("Key", bound=Hashable)

TURN = 4
"""Steps in a row of trainings that are compared."""


@dataclass(frozen=True)
class Measurement:
    """One measured line: `value` in `unit`, beside a `limit` or a peer in the same unit.

    `value` None is "not measured", and `note` says why. `spread` is half the distance between the
    quartiles of `repeats` repeats. `limit_name` says what the limit is and where it comes from.
    """

    stage: str
    name: str
    value: float | None
    unit: str
    limit: float | None = None
    limit_name: str | None = None
    note: str = ""
    spread: float | None = None
    repeats: int | None = None

    @property
    def ratio(self) -> float | None:
        """Measured / limit; None where either is missing.

        >>> Measurement("train", "rope", 30.0, "tokens/s", 60.0, "the peer's").ratio
        0.5
        """
        if self.value is None or not self.limit:
            return None
        return self.value / self.limit


def not_measured(stage: str, name: str, unit: str, why: str) -> Measurement:
    """The line of what could not be measured here."""
    return Measurement(stage, name, None, unit, note=why)


@dataclass(frozen=True)
class Options:
    """What the command line asked for; a stage takes what concerns it.

    encodings  of --pe; empty: the stage's own choice
    lengths    of --lengths, in digits or tokens as the stage says; empty: the stage's own choice
    attention  the backend of attention, "auto" or as in models/backends
    compiled   whether blocks are compiled; None: on a GPU
    seconds    about how long a stage may take
    quick      the smallest sizes that still run every line: for tests, not for figures
    """

    encodings: tuple[Name, ...] = field(default=(), metadata={"option": "--pe"})
    preset: str | None = field(default=None, metadata={"option": "--preset"})
    settings: Mapping[str, str] = field(default_factory=dict, metadata={"option": "--set"})
    lengths: tuple[int, ...] = field(default=(), metadata={"option": "--lengths"})
    directory: Path | None = field(default=None, metadata={"option": "--dir"})
    count: int | None = field(default=None, metadata={"option": "--count"})
    run: Path | None = field(default=None, metadata={"option": "--run"})
    attention: str = field(default="auto", metadata={"option": "--attention"})
    compiled: bool | None = field(default=None, metadata={"option": "--compile"})
    seconds: float = 60.0
    quick: bool = False
    threads: int | None = None

    @property
    def compute(self) -> AttentionChoice:
        return AttentionChoice(self.attention, self.compiled)

    @property
    def cores(self) -> int:
        """Processes or threads of work that is not torch's."""
        return self.threads or os.cpu_count() or 1

    @property
    def folder(self) -> Path:
        """Where what is written goes: --dir, else the system's folder for temporary files."""
        return self.directory or Path(tempfile.gettempdir())

    def names(self, *default: str) -> tuple[Name, ...]:
        """The encodings asked for, else `default`. Errors: UsageError for an extrapolation, which
        has no training of its own and would be dropped."""
        for name in self.encodings:
            if name.extrapolation is not None:
                raise UsageError(f"{name} trains as {name.encoding} does: measure {name.encoding}")
        return self.encodings or tuple(parse(name) for name in default)

    def config(self, preset: str, **settings: object) -> Config:
        """The config asked for, else `preset` with `settings`; --set goes on top of either."""
        if self.preset is None:
            default = {key: str(value) for key, value in settings.items()}
            return load_preset(preset).with_settings({**default, **self.settings})
        return load_preset(self.preset).with_settings(self.settings)


class Timing(NamedTuple):
    """What repeats of a measurement came to, in seconds or another unit: their median, half the
    distance between their quartiles, and their number."""

    median: float
    spread: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Timing":
        """
        >>> Timing.of([3.0, 1.0, 2.0])
        Timing(median=2.0, spread=0.5, repeats=3)
        """
        if len(values) == 1:
            return cls(values[0], 0.0, 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, (high - low) / 2, len(values))

    def rate(self, amount: float) -> tuple[float, float]:
        """Of seconds: `amount` a second, and its spread."""
        return amount / self.median, amount * self.spread / self.median**2


def threads_of(hardware: Hardware) -> str:
    """What computes, in words.

    >>> threads_of(Hardware("cpu", torch.float32)), threads_of(Hardware("cpu", torch.float32, 2))
    ('1 thread', '2 threads')
    """
    if hardware.device == "cuda":
        return "GPU"
    return f"{hardware.threads} thread{'s' if hardware.threads > 1 else ''}"


def as_compiled(hardware: Hardware) -> str:
    """What is said of our decoders where their blocks are compiled; else nothing."""
    return ", blocks compiled" if hardware.compiles else ""


def child_environment() -> dict[str, str]:
    """Variables for another interpreter to find this code, wherever it is called from."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def synchronize(device: str) -> None:
    """Wait until `device` has done what it was asked."""
    if device == "cuda":
        torch.cuda.synchronize()


def once(function: Callable[[], object], device: str = "cpu", calls: int = 1) -> float:
    """Seconds of a call, the device's work included: the mean of `calls` in a row, after which it
    is waited for."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        function()
    synchronize(device)
    return (time.perf_counter() - began) / calls


def timed(function: Callable[[], object], *, warmup: int = 1, repeats: int = 5) -> Timing:
    """Time `function` after `warmup` calls; one repeat at the least."""
    return interleaved({"": function}, warmup=warmup, repeats=repeats)[""]


def interleaved(
    functions: Mapping[Key, Callable[[], object]],
    *,
    device: str = "cpu",
    warmup: int = 1,
    repeats: int = 5,
    seconds: float = float("inf"),
    at_least: float = 0.0,
) -> dict[Key, Timing]:
    """Time several functions in turn, so that a machine that is busy for a while slows all alike.

    Each is called `warmup` times, then all of them round by round, at most `repeats` rounds and
    no round begun after `seconds`, one round at the least. In a round a function is called as often
    as it takes to fill `at_least` seconds, and once at the least.
    """
    for function in functions.values():
        for _ in range(warmup):
            function()
    taken = rounds(functions, device=device, repeats=repeats, seconds=seconds, at_least=at_least)
    return {key: Timing.of(times) for key, times in taken.items()}


def rounds(
    functions: Mapping[Key, Callable[[], object]],
    *,
    device: str = "cpu",
    repeats: int = 5,
    seconds: float = float("inf"),
    at_least: float = 0.0,
) -> dict[Key, list[float]]:
    """The seconds of each call of each function, called in turn as in `interleaved`."""
    taken: dict[Key, list[float]] = {key: [] for key in functions}
    calls = dict.fromkeys(functions, 1)
    if at_least:
        for key, function in functions.items():
            calls[key] = max(1, math.ceil(at_least / max(once(function, device), 1e-9)))
    began = time.perf_counter()
    for number in range(max(repeats, 1)):
        if number and time.perf_counter() - began > seconds:
            break
        for key, function in functions.items():
            taken[key].append(once(function, device, calls[key]))
    return taken


def steps_in_turn(
    trainings: Mapping[Key, Callable[[int], object]],
    *,
    device: str = "cpu",
    turns: int = 5,
    seconds: float = float("inf"),
) -> dict[Key, list[float]]:
    """The seconds of steps 0, 1, 2, ... of trainings that are compared, TURN in a row of each, at
    most `turns` times and no round of them begun after `seconds`. A training is given the number of
    the step that it takes.

    The steps of a turn are taken once before the clock starts: caches are full of what the others
    left there, and oneDNN has no kernels for shapes that are new, as it is in no training that has
    gone on for a while. Who comes first would make kernels for all.
    """
    taken: dict[Key, list[float]] = {key: [] for key in trainings}
    began = time.perf_counter()
    for turn in range(max(turns, 1)):
        if turn and time.perf_counter() - began > seconds:
            break
        numbers = range(turn * TURN, (turn + 1) * TURN)
        for key, step in trainings.items():
            for number in numbers:
                step(number)
            taken[key] += [once(partial(step, number), device) for number in numbers]
    return taken
