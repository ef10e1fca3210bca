"""Choose whether a training on a CPU compiles its blocks: where the steps gain more than it costs.

Both are measured before the first long training of an encoding and size on a machine, and
remembered there, in a file of the user's cache folder.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch
from filelock import FileLock, Timeout

from tape_arith.arith.decoders.build import blueprint, decoder_for
from tape_arith.arith.decoders.cost import timed_config, training_flops
from tape_arith.arith.decoders.failures import NotCompilable, is_out_of_memory
from tape_arith.arith.documents import NonNegative, Part, read_document, write_document
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import slug
from tape_arith.arith.machine import own_version
from tape_arith.arith.registry.names import Encoding, Name, source_hashes
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.options import Compute
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.terminal import duration, say
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.backends import choose_backend
from tape_arith.models.compiling import why_not_compilable
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.runner import Runner

MEASURED_FROM = 5e13
"""Training FLOPs from which on it is measured; shorter trainings on a CPU are not compiled.

On one core of an EPYC (bfloat16, torch 2.13.0) compiling took 41 to 54 s, and gained as much in
5e13 FLOPs of rope and 2e13 of tape. A training of `mini` has 1.6e13, one of `small-20` 2.7e14.
"""
_FIRST_STEPS, _TIMED_STEPS = 4, 5
"""Steps in which groups of all shapes are compiled, and steps that are timed after them."""
_MOST_WAIT = 300.0
"""Seconds to wait for another process that measures the same; it may be suspended."""


class CompilingTimes(Part):
    """Seconds of a training step, plain and compiled, and of compiling, and what decides them."""

    kind: ClassVar[str] = "compiling-times"
    remedy: ClassVar[str] = "remove it, and it is measured again"

    conditions: dict[str, Any]
    plain_step: NonNegative
    compiled_step: NonNegative
    compiling: NonNegative

    def saved(self, steps: int) -> float:
        """Return the seconds that compiling saves in so many steps; below 0 if it takes longer."""
        return steps * (self.plain_step - self.compiled_step) - self.compiling


def choose_compiling(folder: RunFolder, record: RunRecord, compute: Compute) -> Compute:
    """Return `compute` with the choice whether a training on a CPU compiles its blocks.

    A run that has begun goes on as it began, so that its bits stay.
    """
    if compute.compiled is not None or detect().device != "cpu":
        return compute
    began = folder.environment() if folder.environment_file.exists() else None
    if began is None:
        compiled = may_compile(record.config, record.name.encoding)
    else:
        compiled = began.compiled and began.device == "cpu"
    if compiled and (reason := why_not_compilable()):
        say(f"note: not compiled: that {reason}")
        compiled = False
    if compiled and began is None:
        compiled = _gains(record.config, Name(record.name.encoding), compute)
    return compute._replace(compiled=compiled)


def may_compile(config: Config, encoding: Encoding) -> bool:
    """Tell whether a new training on a CPU is long enough to gain by compiling.

    A user's encoding is compiled on request only: torch may not be able to trace it.
    """
    return training_flops(config) >= MEASURED_FROM and not source_hashes(encoding)


def _gains(config: Config, name: Name, compute: Compute) -> bool:
    """Tell whether the steps of a training gain more by compiling than it costs; say why."""
    hardware = detect(*compute)
    backend = choose_backend(hardware.attention, blueprint(config, name).needs, hardware)
    hardware = replace(hardware, attention=backend.name)
    try:
        times = compiling_times(config, name, hardware)
    except NotCompilable as error:
        say(f"note: {error}, which is taken now")
        return False
    except Exception as error:
        if not is_out_of_memory(error.__cause__ or error):
            raise
        say("note: not compiled: too little memory to measure whether that pays")
        return False
    saved = times.saved(config.steps)
    verdict, difference = ("pays", "less") if saved > 0 else ("does not pay", "more")
    say(
        f"compiling {verdict} here: it takes {times.compiling:.0f} s, and {config.steps:,} steps "
        f"take {times.compiled_step:.3g} s each instead of {times.plain_step:.3g}, in all "
        f"{duration(abs(saved))} {difference}"
    )
    return saved > 0


def compiling_times(config: Config, name: Name, hardware: Hardware) -> CompilingTimes:
    """Return what was measured on this machine for this encoding and size, or measure it now.

    Processes that need the same wait for the one that measures.
    """
    conditions = {
        "encoding": str(name),
        "decoder": asdict(blueprint(config, name).config),
        "task": config.task,
        "longest": config.bucket(0).longest,
        "leading_bos": config.leading_bos,
        "batch_size": config.batch_size,
        "groups": config.groups,
        "hardware": hardware.name,
        "dtype": hardware.dtype_name,
        "threads": hardware.threads,
        "attention": hardware.attention,
        "torch": torch.__version__,
        "tape-arith": own_version(),
    }
    key = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:12]
    file = _cache_folder() / "compiling" / f"{slug(str(name))}-{key}.json"
    with _locked(file):
        try:
            return read_document(file, CompilingTimes)
        except Failure:  # missing, or damaged
            pass
        say(f"measuring a minute, once on this machine, whether compiling {name} pays")
        times = CompilingTimes(conditions=conditions, **_measure(config, name, hardware))
        try:
            write_document(file, times.model_dump(), CompilingTimes.kind)
        except Failure as error:
            say(f"note: not remembered: {error}")
        return times


def _cache_folder() -> Path:
    home = os.path.expanduser("~")  # stays "~" for a user without a home
    usual = tempfile.gettempdir() if home == "~" else f"{home}/.cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or usual) / "tape-arith"


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lock `file` against other processes, where that is possible, for _MOST_WAIT at most."""
    lock = FileLock(file.with_suffix(".lock"))
    with suppress(OSError):  # filelock's Timeout is one
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=1)
        except Timeout:
            say("waiting for another process that measures whether compiling pays")
            lock.acquire(timeout=_MOST_WAIT)
    try:
        yield
    finally:
        lock.release()


def _measure(config: Config, name: Name, hardware: Hardware) -> dict[str, float]:
    """Time plain and compiled steps in turn, so that a busy machine slows both alike."""
    config, share = timed_config(config, training_flops(config) / config.steps)
    plain, compiled = (
        Trainer(
            Runner(decoder_for(config, name, seed=0), replace(hardware, compiled=choice)),
            config.bucket(0),
            config,
            curves=False,
            tell=lambda line: None,
        )
        for choice in (False, True)
    )
    for _ in range(_FIRST_STEPS):
        plain.timed_step()
    first = sum(compiled.timed_step() for _ in range(_FIRST_STEPS))
    turns = [(plain.timed_step(), compiled.timed_step()) for _ in range(_TIMED_STEPS)]
    plain_step, compiled_step = map(median, zip(*turns, strict=True))
    return {
        "plain_step": plain_step / share,
        "compiled_step": compiled_step / share,
        "compiling": max(0.0, first - _FIRST_STEPS * compiled_step),
    }
