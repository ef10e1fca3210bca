"""Define results and the options of a stage; time work that is compared.

A stage is a module with `measure(options)`, which yields each Result as soon as it is measured.
torch.utils.benchmark takes the times; it waits for a GPU before it reads the clock.
"""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np
from torch.utils.benchmark import Timer

from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.names import Name, check_encoding, parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import AUTO, Compute
from tape_arith.arith.runs.preset import load_preset
from tape_arith.models.hardware import Hardware

_Key = TypeVar("_Key", bound=Hashable)

TURN = 4
"""Number of consecutive steps of one training before the next training has its turn."""
_MOST_ROUNDS = 67
_ONE_CALL = 1e-9
"""Seconds that any call fills, so that Timer makes one untimed call, then one timed call."""

#: Sizes of --quick.
_TINY = {
    "trained_digits": 2,
    "tested_digits": 4,
    "num_problems": 1_000,
    "num_layers": 2,
    "hidden_size": 16,
    "num_heads": 2,
    "head_dim": 8,
    "mlp_size": 16,
    "batch_size": 8,
}
#: Sizes that suit a CPU, in place of mini's, where no preset is given.
_MIDDLE = {
    "trained_digits": 40,
    "tested_digits": 80,
    "hidden_size": 256,
    "num_heads": 4,
    "head_dim": 64,
    "mlp_size": 512,
}


@dataclass(frozen=True)
class Result:
    """One line of the table: `value` in `unit`, and a `limit` or a peer's value in that unit.

    If `value` is None, nothing was measured, and `note` says why. `spread` is half the distance
    between the quartiles of `repeats` values. `limit_name` says what the limit is.
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

    @classmethod
    def of(
        cls, stage: str, name: str, values: Sequence[float], unit: str, **context: Any
    ) -> "Result":
        """Return a line with the median and the spread of repeated measurements.

        >>> line = Result.of("train", "rope", [3.0, 1.0, 2.0], "s")
        >>> line.value, line.spread, line.repeats
        (2.0, 0.5, 3)
        """
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
        spread = (high - low) / 2
        return cls(stage, name, median, unit, **context, spread=spread, repeats=len(values))

    @property
    def ratio(self) -> float | None:
        """Value / limit; None where either is missing."""
        return None if self.value is None or not self.limit else self.value / self.limit

    def against(self, limit: "Result", name: str | None = None) -> "Result":
        """Return this line with the value of `limit` as its limit, under its name or `name`."""
        return replace(self, limit=limit.value, limit_name=name or limit.name)


@dataclass(frozen=True)
class Options:
    """The options of the command line.

    encodings  empty: the stage's own choice
    lengths    in digits or tokens as the stage says; empty: the stage's own choice
    seconds    about how long a stage may take; 0: the smallest sizes, to check that all lines run
    """

    encodings: tuple[Name, ...] = ()
    preset: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    count: int | None = None
    run: Path | None = None
    compute: Compute = AUTO
    seconds: float = 60.0
    threads: int | None = None

    @property
    def quick(self) -> bool:
        return self.seconds == 0

    @property
    def cores(self) -> int:
        """The number of processes or threads outside torch."""
        return self.threads or os.cpu_count() or 1

    def names(self, *default: str) -> tuple[Name, ...]:
        """Return the encodings of --pe, else `default`.

        Raises UsageError for an extrapolation, which has no training of its own.
        """
        for name in self.encodings:
            check_encoding(name, "a measurement counts the FLOPs of the decoder of this suite")
            if name.extrapolation is not None:
                raise UsageError(f"{name} trains as {name.encoding} does: measure {name.encoding}")
        return self.encodings or tuple(parse(name) for name in default)

    def config(self, hardware: Hardware) -> Config:
        """Return the config of --preset, else the paper's on a GPU and one that suits a CPU.

        Settings of --set replace those of the preset.
        """
        default, sizes = ("paper-40", {}) if hardware.device == "cuda" else ("mini", _MIDDLE)
        if self.quick:
            default, sizes = "mini", _TINY
        if self.preset is not None:
            default, sizes = self.preset, {}
        return load_preset(default).with_settings({**sizes, **self.settings})


def describe_threads(hardware: Hardware) -> str:
    """Return "GPU", or the number of threads in words."""
    if hardware.device == "cuda":
        return "GPU"
    return f"{hardware.threads} thread{'s' if hardware.threads > 1 else ''}"


def time_interleaved(
    functions: Mapping[_Key, Callable[[int], object]],
    seconds: float,
    *,
    most: int = _MOST_ROUNDS,
    fill: float = _ONE_CALL,
) -> dict[_Key, list[float]]:
    """Time several functions, called in turn with the number of the round; return seconds per call.

    They take turns, so that a machine that is busy for a while slows them equally. In each round, a
    function is first called untimed, because the others have filled the caches, and oneDNN and
    torch.compile make their kernels at the first call. Then it is called for `fill` seconds: a
    short GPU call costs less than synchronizing, so several share one timing. There are 1 to `most`
    rounds, and none begins after `seconds`.
    """
    times: dict[_Key, list[float]] = {key: [] for key in functions}
    deadline = monotonic() + seconds
    for number in range(most):
        if number and monotonic() > deadline:
            break
        for key, function in functions.items():
            context = {"function": function, "number": number}
            measured = Timer("function(number)", globals=context)
            times[key] += measured.blocked_autorange(min_run_time=fill).times
    return times


def time_trainings(
    trainings: Mapping[_Key, Callable[[int], object]], seconds: float
) -> dict[_Key, list[float]]:
    """Time trainings in turns of TURN steps; return the seconds of each turn.

    A training is called with the number of a step. All trainings take the same steps, and each turn
    twice: only the second time counts (see `time_interleaved`).
    """

    def turn_of(train: Callable[[int], object]) -> Callable[[int], object]:
        return lambda turn: [train(step) for step in range(turn * TURN, (turn + 1) * TURN)]

    turns = {key: turn_of(train) for key, train in trainings.items()}
    return time_interleaved(turns, seconds)


def rates(count: Callable[[int], int], turns: Sequence[float]) -> list[float]:
    """Return the rate of each turn: the sum of `count` over its steps, per second."""
    steps = [range(turn * TURN, (turn + 1) * TURN) for turn in range(len(turns))]
    return [sum(map(count, turn)) / seconds for turn, seconds in zip(steps, turns, strict=True)]
