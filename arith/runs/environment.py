"""What a run ran on: recorded, so that a number can be traced and a resume can be promised."""

import platform
import sys
from typing import Any

import torch

from tape_arith.arith.version import commit, own_version
from tape_arith.models.hardware import Hardware

# What must be equal for a resumed training to be bit for bit that of an unbroken one. (Of commits
# most change no bit; a version says when one did.)
DECIDES_BITS = (
    "tape-arith",
    "torch",
    "device",
    "hardware",
    "dtype",
    "attention",
    "compiled",
    "processes",
)


_OF_SCORING = ("tape-arith", "commit", "torch", "hardware", "attention", "compiled")


def scoring_facts(hardware: Hardware) -> dict[str, str]:
    """What a grid says of how it was scored: training may have run elsewhere, and earlier."""
    there = environment(hardware)
    return {key: str(there[key]) for key in _OF_SCORING if there[key] is not None}


def environment(hardware: Hardware) -> dict[str, Any]:
    """What environment.json says: versions, commit, command, machine."""
    return {
        "tape-arith": own_version(),
        "commit": commit(),
        "command": " ".join(["tape-arith", *sys.argv[1:]]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": hardware.device,
        "hardware": hardware.name,
        "dtype": hardware.dtype_name,
        "threads": hardware.threads,
        "attention": hardware.attention,
        "compiled": hardware.compiles,
        "system": f"{platform.system()} {platform.machine()}",
    }
