"""Taking the limits of this machine: matrix products, memory, disk, hashing, random numbers.

Each limit is measured once a process and kept, so that all stages of a run are held against the
same figure. On a CPU the suite computes with one thread an item (models/hardware.py): a limit "of
N threads" is that of N threads with work of their own each; N that share a product stand beside it.

Legend: T tokens, D hidden, W width of all heads, M MLP.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from tape_arith.arith.bench.measure import Timing, synchronize, threads_of
from tape_arith.arith.errors import Failure
from tape_arith.arith.training.config import Config
from tape_arith.models.hardware import Hardware

ROUNDS = 3
SQUARES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
QUICK_SQUARES = (64, 128)
#: T of the products of the model: about a group of a batch.
TOKENS = {"cpu": 4_096, "cuda": 32_768}
BLOCK = 2**22


class Scale(NamedTuple):
    """How much is measured: seconds of a round, bytes copied, written and hashed, digits drawn."""

    seconds: float = 0.2
    copied: int = 2**27
    written: int = 2**28
    hashed: int = 2**24
    digits: int = 2**22


FULL = Scale()
QUICK = Scale(0.005, 2**18, 2**20, 2**16, 2**14)


class Limit(NamedTuple):
    """A rate, half the distance between the quartiles of its rounds, and what it is of."""

    rate: float
    spread: float
    name: str


def scale_of(quick: bool) -> Scale:
    return QUICK if quick else FULL


def product_limit(hardware: Hardware, quick: bool = False) -> Limit:
    """FLOP/s of square products in `hardware.dtype`, of the size that is fastest; on a CPU each
    thread has products of its own. What training and scoring are held against."""
    return _product_limit(replace(hardware, attention="auto"), quick)


@cache
def _product_limit(hardware: Hardware, quick: bool) -> Limit:
    best = max(_squares(hardware, size, quick) for size in _square_sizes(hardware, quick))
    each = " each" if hardware.threads > 1 else ""
    return best._replace(name=f"{_products(hardware)}, {best.name}, {threads_of(hardware)}{each}")


@cache
def model_limit(hardware: Hardware, config: Config, quick: bool = False) -> Limit:
    """The same for the products of one block of the decoder, forward and backward."""
    tokens = 64 if quick else TOKENS[hardware.device]
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    shapes = (
        (hidden, 3 * width),
        (width, hidden),
        (hidden, 2 * config.mlp_size),
        (config.mlp_size, hidden),
    )

    def prepare() -> tuple[Callable[[], object], float]:
        linears = [
            (
                _random(hardware, tokens, wide),
                _random(hardware, out, wide),
                _random(hardware, tokens, out),
            )
            for wide, out in shapes
        ]

        def work() -> None:
            for x, weight, gradient in linears:
                x @ weight.t()
                gradient @ weight
                gradient.t() @ x

        return work, 6.0 * tokens * sum(wide * out for wide, out in shapes)

    found = _limit(hardware, prepare, scale_of(quick).seconds)
    each = " each" if hardware.threads > 1 else ""
    name = f"{_products(hardware)}, shapes of the model, {threads_of(hardware)}{each}"
    return found._replace(name=name)


@cache
def shared_limit(hardware: Hardware, quick: bool = False) -> Limit:
    """The same for one product at a time that all threads share, as torch does by default."""
    alone = replace(hardware, threads=1)
    before = torch.get_num_threads()
    torch.set_num_threads(hardware.threads)
    try:
        best = max(_squares(alone, size, quick) for size in _square_sizes(hardware, quick))
    finally:
        torch.set_num_threads(before)
    name = f"{_products(hardware)}, {best.name}, shared by {threads_of(hardware)}"
    return best._replace(name=name)


@cache
def copy_limit(hardware: Hardware, scale: Scale) -> Limit:
    """Bytes copied a second, from arrays to arrays that no cache holds."""

    def prepare() -> tuple[Callable[[], object], float]:
        source = torch.ones(scale.copied, dtype=torch.uint8, device=hardware.device)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source), float(scale.copied)

    found = _limit(hardware, prepare, scale.seconds)
    return found._replace(name=f"memory copy, {threads_of(hardware)}")


@cache
def disk_limit(folder: Path, writers: int, scale: Scale) -> Limit:
    """Bytes a second to new files in `folder`, one a writer, until they are synced.

    Errors: Failure where the disk refuses.
    """
    block = np.random.default_rng(0).bytes(min(BLOCK, scale.written))
    blocks = max(1, scale.written // len(block) // writers)

    def write(number: int) -> None:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".bench-") as file:
            for _ in range(blocks):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def everybody() -> float:
        began = perf_counter()
        for _ in _workers(writers).parallel_map(write, range(writers)):
            pass
        return blocks * writers * len(block) / (perf_counter() - began)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        rates = [everybody() for _ in range(ROUNDS)]
    except OSError as error:
        raise Failure(f"cannot write to {folder}: {error.strerror or error}") from error
    name = f"disk write, {writers} file{'s' if writers > 1 else ''} at once"
    return _of(rates)._replace(name=name)


@cache
def hash_limit(threads: int, scale: Scale) -> Limit:
    """Bytes a second through SHA-256."""

    def prepare() -> tuple[Callable[[], object], float]:
        data = bytes(scale.hashed)
        return lambda: hashlib.sha256(data).digest(), float(scale.hashed)

    found = _limit(_workers(threads), prepare, scale.seconds)
    return found._replace(name=f"SHA-256, {threads_of(_workers(threads))}")


@cache
def digit_limit(threads: int, scale: Scale) -> Limit:
    """Random decimal digits a second, one byte each, as numpy's Philox draws them."""

    def prepare() -> tuple[Callable[[], object], float]:
        generator = np.random.Generator(np.random.Philox())
        draw = generator.integers
        return lambda: draw(0, 10, scale.digits, dtype=np.uint8), float(scale.digits)

    found = _limit(_workers(threads), prepare, scale.seconds)
    return found._replace(name=f"random digits, numpy Philox, {threads_of(_workers(threads))}")


def _limit(
    hardware: Hardware, prepare: Callable[[], tuple[Callable[[], object], float]], seconds: float
) -> Limit:
    """The summed rate of one worker a thread; each prepares work and says how much a call does."""
    # Work on a GPU is asked for without waiting, several calls at a time.
    calls_at_once = 8 if hardware.device == "cuda" else 1
    barrier = threading.Barrier(hardware.threads, timeout=120.0)

    def worker(_: int) -> list[float]:
        try:
            work, amount = prepare()
            work()
            rates = []
            for _ in range(ROUNDS):
                synchronize(hardware.device)
                barrier.wait()
                calls, began = 0, perf_counter()
                while not calls or perf_counter() - began < seconds:
                    for _ in range(calls_at_once):
                        work()
                    synchronize(hardware.device)
                    calls += calls_at_once
                rates.append(amount * calls / (perf_counter() - began))
            return rates
        except BaseException:
            barrier.abort()  # or the others would wait for this one
            raise

    each = list(hardware.parallel_map(worker, range(hardware.threads)))
    return _of([sum(rates) for rates in zip(*each, strict=True)])


def _of(rates: list[float]) -> Limit:
    median, spread, _ = Timing.of(rates)
    return Limit(median, spread, "")


def _squares(hardware: Hardware, size: int, quick: bool) -> Limit:
    def prepare() -> tuple[Callable[[], object], float]:
        a, b, out = (_random(hardware, size, size) for _ in range(3))
        return lambda: torch.mm(a, b, out=out), 2.0 * size**3

    return _limit(hardware, prepare, scale_of(quick).seconds)._replace(name=f"{size} x {size}")


def _square_sizes(hardware: Hardware, quick: bool) -> tuple[int, ...]:
    return QUICK_SQUARES if quick else SQUARES[hardware.device]


def _random(hardware: Hardware, rows: int, columns: int) -> torch.Tensor:
    # Not ones: a GPU multiplies equal numbers with less power, and so at a higher clock.
    return torch.randn(rows, columns, dtype=hardware.dtype, device=hardware.device)


def _workers(threads: int) -> Hardware:
    """Threads for work that is not torch's."""
    return Hardware("cpu", torch.float32, threads)


def _products(hardware: Hardware) -> str:
    return f"{hardware.dtype_name} products"
