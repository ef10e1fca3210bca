"""Describe and record the machine and software of a run; report changes when it resumes."""

import platform

import torch

from tape_arith.arith.machine import commit, own_version
from tape_arith.arith.origin import command_line
from tape_arith.arith.runs.record import Machine
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import say
from tape_arith.models.hardware import Hardware

_SCORING_FACTS = ("tape_arith", "commit", "torch", "hardware", "attention", "compiled")
# A resumed training equals an unbroken one bit for bit if these facts are equal. The commit is not
# among them: most commits change no bit, and one that does comes with a new version.
_DECIDES_BITS = (
    "tape_arith",
    "torch",
    "device",
    "hardware",
    "dtype",
    "attention",
    "compiled",
    "processes",
)


def machine(hardware: Hardware, processes: int = 1) -> Machine:
    """Describe what this call computes with."""
    return Machine(
        tape_arith=own_version(),
        commit=commit(),
        command=command_line(),
        python=platform.python_version(),
        torch=torch.__version__,
        device=hardware.device,
        hardware=hardware.name,
        dtype=hardware.dtype_name,
        threads=hardware.threads,
        attention=hardware.attention,
        compiled=hardware.compiled,
        system=f"{platform.system()} {platform.machine()}",
        processes=processes,
    )


def scoring_facts(hardware: Hardware) -> dict[str, str]:
    """Return what a grid records of the software and machine that score it."""
    facts = machine(hardware)
    values = {_key(name): getattr(facts, name) for name in _SCORING_FACTS}
    return {key: str(value) for key, value in values.items() if value is not None}


def record_machine(run: Run, now: Machine) -> None:
    """Record what this call trains with, after the machines of earlier calls.

    Reports on stderr the changes that may make a resumed run differ from an unbroken one.
    """
    record = run.record()
    if last := record.machine:
        changes = [
            f"{_key(name)} changed from {getattr(last, name)} to {getattr(now, name)}"
            for name in _DECIDES_BITS
            if getattr(last, name) != getattr(now, name)
        ]
        if changes and run.state().weights == "checkpoint":
            say("note: not bit for bit an unbroken run: since the last call " + ", ".join(changes))
    run.update_record(machines=(*(each for each in record.machines if each != now), now))


def _key(name: str) -> str:
    """Return the name of a fact as people read it: "tape-arith"."""
    return name.replace("_", "-")
