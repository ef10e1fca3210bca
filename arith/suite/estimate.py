"""How long a preset would take on this machine, from the rate of its matrix products."""

import time

import torch

from arith.suite.presets import load_preset
from arith.training.config import Config
from models.hardware import Hardware, detect

PROBE_SECONDS = 0.3
# What training reaches of the rate of plain products, at best; an estimate says "at least".
EFFICIENCY = 0.5


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
