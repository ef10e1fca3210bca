"""The rates that this machine reaches: matrix products, memory, disk, hashing, random numbers.

Each limit is measured once a process and kept, so that all stages of a call are read beside the
same figure. On a CPU the suite computes one item a thread (models/hardware.py): a limit "of N
threads" is that of N threads with work of their own each.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.benchmark import Timer

from tape_arith.arith.bench.measure import (
    Options,
    Result,
    describe_threads,
    time_call,
    time_interleaved,
)
from tape_arith.arith.errors import Failure
from tape_arith.models.hardware import Hardware, detect

_ROUNDS = 3
_SQUARES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
_QUICK_SQUARES = (64, 128)
_SECONDS, _QUICK_SECONDS = 0.1, 0.002  # of a round
_QUICK_PART = 2**9
"""Divides the bytes and digits of a call with --quick."""
_BLOCK = 2**19


class Limit(NamedTuple):
    """A rate of each round, and what it is of."""

    rates: tuple[float, ...]
    name: str

    @property
    def rate(self) -> float:
        return float(np.median(self.rates))


def measure(options: Options) -> Iterator[Result]:
    """Measure every limit, of one thread and of all."""
    hardware = detect()
    for threads in sorted({1, hardware.threads}):
        some = replace(hardware, threads=threads)
        for dtype in (torch.float32, torch.bfloat16):
            products = product_limit(replace(some, dtype=dtype), options.quick)
            yield _line(products, "FLOP/s", "the fastest square")
        yield _line(_copy_limit(some, options.quick), "B/s", "copied: read once and written once")
    for threads in sorted({1, options.cores}):
        written = disk_limit(options.folder, threads, options.quick)
        yield _line(written, "B/s", "random bytes, new files, fsync")
        yield _line(hash_limit(threads, options.quick), "B/s", "")
        yield _line(digit_limit(threads, options.quick), "digits/s", "Generator.integers, uint8")


def _line(limit: Limit, unit: str, note: str) -> Result:
    return Result.of("limits", limit.name, limit.rates, unit, note=note)


def product_limit(hardware: Hardware, quick: bool = False) -> Limit:
    """Measure FLOP/s of square matrix products in `hardware.dtype`, of the size that is fastest.

    On a CPU each thread has products of its own. Training and scoring are read beside it.
    """
    return _product_limit(replace(hardware, attention="auto", compiled=None), quick)


@cache
def _product_limit(hardware: Hardware, quick: bool) -> Limit:
    sizes = _QUICK_SQUARES if quick else _SQUARES[hardware.device]
    return max((_squares(hardware, size, quick) for size in sizes), key=lambda limit: limit.rate)


def _squares(hardware: Hardware, size: int, quick: bool) -> Limit:
    def prepare() -> Callable[[], object]:
        # Random: a GPU multiplies equal numbers with less power, and so at a higher clock.
        a, b = torch.randn(2, size, size, dtype=hardware.dtype, device=hardware.device)
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    name = f"{hardware.dtype_name} products, {size} x {size}"
    return _limit(name, hardware, prepare, 2.0 * size**3, quick)


@cache
def _copy_limit(hardware: Hardware, quick: bool) -> Limit:
    """Measure bytes copied a second, from arrays to arrays that no cache holds."""
    size = 2**27 // (_QUICK_PART if quick else 1)

    def prepare() -> Callable[[], object]:
        source = torch.ones(size, dtype=torch.uint8, device=hardware.device)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)

    return _limit("memory copy", hardware, prepare, size, quick)


@cache
def hash_limit(threads: int, quick: bool = False) -> Limit:
    """Measure bytes a second through SHA-256."""
    data = bytes(2**24 // (_QUICK_PART if quick else 1))

    def prepare() -> Callable[[], object]:
        return lambda: hashlib.sha256(data).digest()

    return _limit("SHA-256", _threads(threads), prepare, len(data), quick)


@cache
def digit_limit(threads: int, quick: bool = False) -> Limit:
    """Measure random digits a second, as numpy's Philox draws them."""
    count = 2**22 // (_QUICK_PART if quick else 1)

    def prepare() -> Callable[[], object]:
        generator = np.random.Generator(np.random.Philox())
        return lambda: generator.integers(0, 10, count, dtype=np.uint8)

    return _limit("random digits, numpy Philox", _threads(threads), prepare, count, quick)


@cache
def disk_limit(folder: Path, writers: int, quick: bool = False) -> Limit:
    """Measure bytes a second to new files in `folder`, one a writer, until they are synced.

    Raises Failure if the disk refuses.
    """
    block = np.random.default_rng(0).bytes(_BLOCK)
    blocks = max(1, 2**28 // (_QUICK_PART if quick else 1) // _BLOCK // writers)

    def write(_: int) -> None:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".bench-") as file:
            for _ in range(blocks):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def write_all() -> None:
        list(_threads(writers).parallel_map(write, range(writers)))

    try:
        folder.mkdir(parents=True, exist_ok=True)
        times = [time_call(write_all) for _ in range(_ROUNDS)]
    except OSError as error:
        raise Failure(f"cannot write to {folder}: {error.strerror or error}") from error
    rates = tuple(blocks * writers * len(block) / seconds for seconds in times)
    return Limit(rates, f"disk write, {writers} file{'s' if writers > 1 else ''} at once")


def _limit(
    name: str,
    hardware: Hardware,
    prepare: Callable[[], Callable[[], object]],
    amount: float,
    quick: bool,
) -> Limit:
    """Measure the rate of one worker a thread, all at once.

    Each has work of its own from `prepare`, of which a call does `amount`.
    """
    work = [prepare() for _ in range(hardware.threads)]
    seconds = _QUICK_SECONDS if quick else _SECONDS
    alone = Timer("call()", globals={"call": work[0]}).blocked_autorange(min_run_time=seconds / 4)
    calls = max(1, round(seconds / alone.median))

    def call_often(call: Callable[[], object]) -> None:
        for _ in range(calls):
            call()

    def call_all(_: int) -> None:
        list(hardware.parallel_map(call_often, work))

    times = time_interleaved({"all": call_all}, most=_ROUNDS)["all"]
    at_once = " at once" if hardware.threads > 1 else ""
    rates = tuple(amount * calls * len(work) / taken for taken in times)
    return Limit(rates, f"{name}, {describe_threads(hardware)}{at_once}")


def _threads(threads: int) -> Hardware:
    """Return threads for work that is not torch's."""
    return Hardware("cpu", torch.float32, threads)
