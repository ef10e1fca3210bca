"""The sizes that are measured where the command line names none."""

from tape_arith.arith.bench.measure import Options
from tape_arith.arith.training.config import Config
from tape_arith.models.hardware import Hardware

#: Every line in a moment.
TINY = {
    "trained_digits": 2,
    "tested_digits": 4,
    "num_problems": 1_000,
    "num_layers": 2,
    "hidden_size": 16,
    "num_heads": 2,
    "head_dim": 8,
    "mlp_size": 16,
    "batch_size": 8,
    "problems_per_cell": 5,
}
#: What the goals on a CPU are stated for.
MIDDLE = {
    "trained_digits": 40,
    "tested_digits": 80,
    "hidden_size": 256,
    "num_heads": 4,
    "head_dim": 64,
    "mlp_size": 512,
}


def training_config(options: Options, hardware: Hardware) -> Config:
    """What was asked for; else the paper's on a GPU, and one that suits a CPU elsewhere."""
    if options.quick:
        return options.config("mini", **TINY)
    if hardware.device == "cuda":
        return options.config("paper-40")
    return options.config("mini", **MIDDLE)
