"""The limits of this machine, of one thread and of all: what the other stages are read beside.

How each is taken, once a process, stands in limits.py.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Measurement, Options
from tape_arith.arith.bench.sizes import training_config
from tape_arith.arith.training.config import Config
from tape_arith.models.hardware import Hardware, detect

STAGE = "ceilings"
TAKES = frozenset({"preset", "settings", "directory"})


def measure(options: Options) -> Iterator[Measurement]:
    """Every limit, of one thread and of all."""
    hardware, scale = detect(), limits.scale_of(options.quick)
    config = training_config(options, hardware)
    for dtype in (torch.float32, torch.bfloat16):
        for some in one_and_all(replace(hardware, dtype=dtype)):
            yield _line(limits.product_limit(some, options.quick), "FLOP/s", "the best square")
            yield _line(limits.model_limit(some, config, options.quick), "FLOP/s", _sizes(config))
        if hardware.threads > 1:
            yield _line(
                limits.shared_limit(replace(hardware, dtype=dtype), options.quick),
                "FLOP/s",
                "the best square; the suite does not compute so",
            )
    for some in one_and_all(hardware):
        copied = limits.copy_limit(some, scale)
        yield _line(copied, "B/s", "bytes copied; read once and written once")
    for threads in sorted({1, options.cores}):
        written = limits.disk_limit(options.folder, threads, scale)
        yield _line(written, "B/s", "random bytes, new files, fsync")
        yield _line(limits.hash_limit(threads, scale), "B/s")
        drawn = limits.digit_limit(threads, scale)
        yield _line(drawn, "digits/s", "Generator.integers(0, 10, uint8)")


def one_and_all(hardware: Hardware) -> list[Hardware]:
    """The same hardware with one thread, and with all where they are more."""
    one = replace(hardware, threads=1)
    return [one] if hardware.threads == 1 else [one, hardware]


def _line(limit: limits.Limit, unit: str, note: str = "") -> Measurement:
    return Measurement(
        STAGE, limit.name, limit.rate, unit, note=note, spread=limit.spread, repeats=limits.ROUNDS
    )


def _sizes(config: Config) -> str:
    return (
        f"hidden {config.hidden_size}, heads {config.num_heads} x {config.head_dim}, "
        f"MLP {config.mlp_size}; forward and backward"
    )
