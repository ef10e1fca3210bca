"""Describe and record versions and machine of a run; report changes when it resumes."""

import platform
import sys
from typing import Any

import torch

from tape_arith.arith.documents import write_validated
from tape_arith.arith.lock import check_lock
from tape_arith.arith.machine import commit, own_version
from tape_arith.arith.runs.record import Environment
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import say
from tape_arith.models.hardware import Hardware

_SCORING_FACTS = ("tape-arith", "commit", "torch", "hardware", "attention", "compiled")
# A resumed training equals an unbroken one bit for bit if these facts are equal. The commit is not
# among them: most commits change no bit, and one that does comes with a new version.
_DECIDES_BITS = (
    "tape-arith",
    "torch",
    "device",
    "hardware",
    "dtype",
    "attention",
    "compiled",
    "processes",
)


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
        "compiled": hardware.compiled,
        "system": f"{platform.system()} {platform.machine()}",
    }


def scoring_facts(hardware: Hardware) -> dict[str, str]:
    """Return what a grid records of the software and machine that score it."""
    facts = environment(hardware)
    return {key: str(facts[key]) for key in _SCORING_FACTS if facts[key] is not None}


def record_environment(run: Run, now: dict[str, Any]) -> None:
    """Write environment.json, which also keeps the environments of earlier calls.

    Reports on stderr the changes that may make a resumed run differ from an unbroken one.
    """
    earlier: list[dict[str, Any]] = []
    if run.environment_file.exists():
        last = run.environment().model_dump(by_alias=True)
        earlier = [each for each in (*last.pop("earlier"), last) if each != now]
        changed = [key for key in _DECIDES_BITS if last[key] != now[key]]
        if changed and run.state().weights == "checkpoint":
            changes = ", ".join(f"{key} changed from {last[key]} to {now[key]}" for key in changed)
            say(f"note: not bit for bit an unbroken run: since the last call {changes}")
    check_lock(run.path)
    content = {**now, "earlier": earlier} if earlier else now
    write_validated(run.environment_file, content, Environment)
