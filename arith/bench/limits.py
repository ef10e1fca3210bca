"""Measure the rates that this machine reaches: matrix products, disk, hashing, random numbers.

Each limit is measured once per process, so that all stages of a call are compared with the same
figure. On a CPU each thread of the suite computes its own item (models/hardware.py): a limit "of N
threads" is measured on N threads, each with its own work.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch

from tape_arith.arith.bench.measure import Options, Result, describe_threads, time_interleaved
from tape_arith.arith.errors import Failure
from tape_arith.models.hardware import Hardware, detect

_ROUNDS, _SECONDS = 3, 10.0
"""Maximum rounds and seconds of each limit."""
_SQUARES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
_QUICK_SQUARES = (64, 128)
_QUICK_PART = 2**9
"""The divisor of a call's bytes and digits with --quick."""
_BLOCK = 2**19


def measure(options: Options) -> Iterator[Result]:
    """Measure every limit, with one thread and with all."""
    hardware, quick = detect(), options.quick
    for threads in sorted({1, hardware.threads}):
        for dtype in (torch.float32, torch.bfloat16):
            yield product_limit(replace(hardware, threads=threads, dtype=dtype), quick)
    for threads in sorted({1, options.cores}):
        yield disk_limit(threads, quick)
        yield hash_limit(threads, quick)
        yield digit_limit(threads, quick)


def product_limit(hardware: Hardware, quick: bool = False) -> Result:
    """Measure FLOP/s of square matrix products in `hardware.dtype`, at the fastest size.

    On a CPU each thread has products of its own. Training and scoring are compared with this limit.
    """
    return _product_limit(
        replace(hardware, attention="auto", compiled=False, recorded=False), quick
    )


@cache
def _product_limit(hardware: Hardware, quick: bool) -> Result:
    def square(size: int) -> Callable[[], object]:
        # Random numbers: a GPU multiplies equal ones with less power, so at a higher clock.
        a, b = torch.randn(2, size, size, dtype=hardware.dtype, device=hardware.device)
        return partial(torch.mm, a, b, out=torch.empty_like(a))

    lines = []
    for size in _QUICK_SQUARES if quick else _SQUARES[hardware.device]:
        name, work = f"{hardware.dtype_name} products, {size} x {size}", partial(square, size)
        lines.append(_limit(name, "FLOP/s", hardware, work, 2.0 * size**3, quick))
    return max(lines, key=lambda line: line.value or 0.0)


@cache
def hash_limit(threads: int, quick: bool = False) -> Result:
    """Measure the bytes that SHA-256 hashes per second."""
    data = bytes(2**24 // (_QUICK_PART if quick else 1))
    work = partial(partial, hashlib.sha256, data)
    return _limit("SHA-256", "B/s", _threads(threads), work, len(data), quick)


@cache
def digit_limit(threads: int, quick: bool = False) -> Result:
    """Measure the random digits that numpy's Philox draws per second."""
    count = 2**22 // (_QUICK_PART if quick else 1)

    def draw() -> Callable[[], object]:
        generator = np.random.Generator(np.random.Philox())
        return partial(generator.integers, 0, 10, count, dtype=np.uint8)

    name = "random digits, numpy Philox"
    return _limit(name, "digits/s", _threads(threads), draw, count, quick)


@cache
def disk_limit(writers: int, quick: bool = False) -> Result:
    """Measure bytes per second, written and synced to new temporary files, one per writer.

    Raises Failure if the disk refuses.
    """
    block = np.random.default_rng(0).bytes(_BLOCK)
    blocks = max(1, 2**28 // (_QUICK_PART if quick else 1) // _BLOCK // writers)

    def write() -> None:
        with tempfile.NamedTemporaryFile(prefix="bench-") as file:
            for _ in range(blocks):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    try:
        size = blocks * len(block)
        return _limit("disk write", "B/s", _threads(writers), lambda: write, size, quick)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise Failure(f"cannot write to {folder} (TMPDIR names another): {error}") from error


def _limit(
    name: str,
    unit: str,
    hardware: Hardware,
    prepare: Callable[[], Callable[[], object]],
    amount: float,
    quick: bool,
) -> Result:
    """Measure the total rate of workers, one per thread, that all work at once.

    `prepare` makes the function of one worker; each call of that does `amount` of work.
    """
    work = [prepare() for _ in range(hardware.threads)]

    def call_all(_: int) -> None:
        list(hardware.parallel_map(lambda call: call(), work))

    fill = 0.002 if quick else 0.1
    times = time_interleaved({"all": call_all}, _SECONDS, most=_ROUNDS, fill=fill)["all"]
    at_once = " at once" if hardware.threads > 1 else ""
    rates = [amount * len(work) / seconds for seconds in times]
    return Result.of("limits", f"{name}, {describe_threads(hardware)}{at_once}", rates, unit)


def _threads(threads: int) -> Hardware:
    """Return a CPU with `threads` threads, for work outside torch."""
    return Hardware("cpu", torch.float32, threads)
