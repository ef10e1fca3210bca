"""Where results are written: whether one can, whether they fit, and what time it is there."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.doctor.finding import Finding, size
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import append_line, atomic
from tape_arith.arith.runs import lock
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.sweeps.estimate import parameters
from tape_arith.models.names.parse import parse

STATES_KEPT = 3
"""Of a training: the two newest, and the one from before the cool-down."""
SAMPLE = 4096
SLOW_WRITE = 0.5
"""Seconds for a small file, its fsync included."""
MOST_SKEW = lock.DEAD_AFTER / 2


def disk(preset: str, folders: list[Path]) -> list[Finding]:
    """Of the folders of runs and of datasets."""
    need = needed(preset)
    return [
        finding
        for folder, bytes_needed in zip(folders, need, strict=True)
        for finding in (_written(folder), _fits(folder, bytes_needed, preset))
    ] + [_clock(folders[0])]


def needed(preset: str) -> tuple[int, int]:
    """Bytes of one run while it trains, and of its dataset, were it written."""
    config = load_preset(preset)
    weights = 4 * parameters(config, parse("tape"))
    bucket = Bucket(config.task, config.trained_digits, 0, "train")
    lengths = bucket.problems(0, SAMPLE).lengths
    return weights * (1 + 3 * STATES_KEPT), int(config.num_problems * (lengths.mean() + 2))


def _written(folder: Path) -> Finding:
    place, what = nearest(folder), f"writing to {folder}"
    probe = place / f".doctor-{os.getpid()}"
    began = time.perf_counter()
    try:
        with lock.hold(probe, "doctor"):
            with atomic(probe / "file") as temporary:
                temporary.write_bytes(b"whole")
            append_line(probe / "file", "and more")
    except Failure as error:
        return Finding(what, "broken", str(error), "choose another folder with --out")
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    seconds = time.perf_counter() - began
    found = f"allowed in {place.resolve()}: {1000 * seconds:.0f} ms a file"
    if seconds > SLOW_WRITE:
        return Finding(what, "slow", found, "a disk of this machine is faster")
    return Finding(what, "ok", found)


def _fits(folder: Path, need: int, preset: str) -> Finding:
    what, free = f"space for {folder}", shutil.disk_usage(nearest(folder)).free
    found = f"{size(free)} free, {size(need)} for one of {preset}"
    if free < need:
        return Finding(what, "broken", found, "free some, or choose another folder with --out")
    return Finding(what, "ok", found)


def _clock(folder: Path) -> Finding:
    probe = nearest(folder) / f".doctor-{os.getpid()}"
    try:
        probe.touch()
        skew = probe.stat().st_mtime - time.time()
    except OSError as error:
        found = f"not compared with the file system's: {error.strerror}"
        return Finding("clock", "missing", found, "it is, where one can write")
    finally:
        with suppress(OSError):
            probe.unlink()
    found = f"{abs(skew):.1f} s from that of the file system"
    if abs(skew) > MOST_SKEW:
        mend = "set it (NTP): by it locks of other machines are judged"
        return Finding("clock", "broken", found, mend)
    return Finding("clock", "ok", found)


def nearest(folder: Path) -> Path:
    """The folder itself, or what is above it, in which it would be made."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
