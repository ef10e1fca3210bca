"""What a run is computed on: versions and machine, whether blocks are compiled, what may differ."""

import platform
import sys
from typing import Any

import torch

from tape_arith.arith.documents import write_document
from tape_arith.arith.machine import commit, own_version
from tape_arith.arith.runs.cost import training_flops
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import Environment, RunRecord
from tape_arith.arith.terminal import say
from tape_arith.arith.training.config import Config
from tape_arith.models.build import why_not_compilable
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names import AttentionChoice, Encoding, source_hashes

COMPILED_FROM = 1e14
"""Training FLOPs from which on blocks are compiled on a CPU.

Measured on one core of an EPYC (bfloat16, torch 2.13.0) in seconds of that core; eager and compiled
steps took turns. A step of `small-20` (6.8e10 FLOPs) takes 0.40 and compiled 0.34 with rope, 0.60
and 0.44 with tape; compiling takes 41 and 54. So it pays from 5e13 FLOPs on with rope and from 2e13
with tape; this is twice the larger. A training of `mini` has 1.6e13 (a step with rope takes 0.17
and 0.13, compiling 46), one of `small-20` 2.7e14.
"""
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


def choose_compiling(
    folder: RunFolder, record: RunRecord, compute: AttentionChoice
) -> AttentionChoice:
    """Return `compute` with the choice whether a training on a CPU compiles its blocks.

    A run that has begun goes on as it began, so that its bits stay.
    """
    if compute.compiled is not None or detect().device != "cpu":
        return compute
    if folder.environment_file.exists():
        began = folder.environment()
        compiled = began.compiled and began.device == "cpu"
    else:
        compiled = compiles_by_default(record.config, record.name.encoding)
    if compiled and (reason := why_not_compilable()):
        say(f"note: not compiled: that {reason}")
        compiled = False
    return compute._replace(compiled=compiled)


def compiles_by_default(config: Config, encoding: Encoding) -> bool:
    """Tell whether a new training on a CPU gains more time by compiling than that takes.

    A user's encoding is compiled on request only: torch may not be able to trace it.
    """
    return training_flops(config) >= COMPILED_FROM and not source_hashes(encoding)


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


def scoring_facts(hardware: Hardware) -> dict[str, str]:
    """Return what a grid records of the software and machine that score it."""
    facts = environment(hardware)
    return {key: str(facts[key]) for key in _SCORING_FACTS if facts[key] is not None}


def record_environment(folder: RunFolder, now: dict[str, Any]) -> None:
    """Write environment.json, and keep the environments of earlier calls in it.

    Reports on stderr the changes that may make a resumed run differ from an unbroken one.
    """
    earlier: list[dict[str, Any]] = []
    if folder.environment_file.exists():
        last = folder.environment().model_dump(by_alias=True)
        earlier = [each for each in (*last.pop("earlier"), last) if each != now]
        changed = [key for key in _DECIDES_BITS if last[key] != now[key]]
        if changed and folder.unfinished():
            changes = ", ".join(f"{key} changed from {last[key]} to {now[key]}" for key in changed)
            say(f"note: not bit for bit an unbroken run: since the last call {changes}")
    content = {**now, "earlier": earlier} if earlier else now
    write_document(folder.environment_file, content, Environment.kind)
