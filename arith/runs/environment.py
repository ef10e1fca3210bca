"""The machine and software of a run, recorded so that every number can be traced."""

import platform
import sys
from typing import Any

import torch

from tape_arith.arith.version import commit, own_version
from tape_arith.models.hardware import Hardware

# A resumed training equals an unbroken one bit for bit if these are equal. The commit is not one of
# them: most commits change no bit, and a new version says if one did.
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
    """Return the facts that a grid records of its scoring, which may run on another machine."""
    facts = environment(hardware)
    return {key: str(facts[key]) for key in _OF_SCORING if facts[key] is not None}


def environment(hardware: Hardware) -> dict[str, Any]:
    """Return the content of environment.json: versions, commit, command, machine."""
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
