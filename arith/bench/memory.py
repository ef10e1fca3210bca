"""How much memory a stage takes, by the operating system's own account, or the GPU's."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from tape_arith.arith.bench.measure import synchronize


class Peak:
    """What `peak_memory` found: `before` the block and at most in it, in bytes; None where the
    system does not tell."""

    before: int | None = None
    bytes: int | None = None


@contextmanager
def peak_memory(device: str = "cpu") -> Iterator[Peak]:
    """The most memory in use at once within the block: of the GPU where torch computes there (its
    tensors), else of this whole process, interpreter and libraries included, as the system says."""
    peak = Peak()
    if device == "cuda":
        synchronize(device)
        torch.cuda.reset_peak_memory_stats()
        peak.before = torch.cuda.memory_allocated()
        yield peak
        synchronize(device)
        peak.bytes = torch.cuda.max_memory_allocated()
        return
    # "5" sets the high-water mark back to the present size; where that is refused, the mark is
    # of the process's whole life, and so an upper bound.
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    peak.before = high_water(os.getpid())
    yield peak
    peak.bytes = high_water(os.getpid())


def high_water(pid: int) -> int | None:
    """Bytes of the most memory that a process ever held (VmHWM); None where it is not told."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


class TreeMemory:
    """The memory of a process and of all its descendants, watched from a thread while it runs.

    `bytes` is the sum of each process's own high-water mark: never less than what they held at
    once, and more by the pages that they share. None where the system does not tell.
    """

    def __init__(self, pid: int, every: float = 0.02) -> None:
        self.marks: dict[int, int] = {}
        self._pid, self._every, self._done = pid, every, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "TreeMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def bytes(self) -> int | None:
        return sum(self.marks.values()) or None

    @property
    def processes(self) -> int:
        return len(self.marks)

    def _watch(self) -> None:
        while True:
            for pid in [self._pid, *descendants(self._pid)]:
                # A process that is ending has no mark any more: the last one seen stays.
                if mark := high_water(pid):
                    self.marks[pid] = mark
            if self._done.wait(self._every):
                return


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on, as far as the system tells."""
    found: list[int] = []
    with suppress(OSError):  # it may end while it is looked at
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found
