"""The limits: that they are rates of what they say, and of all threads."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.limits import QUICK
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.presets import load_preset
from tape_arith.models.hardware import Hardware

CPU = Hardware("cpu", torch.float32)
TWO = Hardware("cpu", torch.float32, threads=2)


def test_products_are_the_same_whatever_backend_attention_has() -> None:
    other = Hardware("cpu", torch.bfloat16, attention="sdpa")
    assert limits.product_limit(other, quick=True) == limits.product_limit(
        Hardware("cpu", torch.bfloat16), quick=True
    )


@pytest.mark.parametrize("hardware", [CPU, TWO])
def test_a_rate_is_the_sum_over_threads(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of each thread's own, that only its work moves: 0.25 s a call."""
    clock = threading.local()
    monkeypatch.setattr(limits, "perf_counter", lambda: getattr(clock, "now", 0.0))
    threads: set[int] = set()

    def prepare() -> tuple[Callable[[], object], float]:
        def work() -> None:
            threads.add(threading.get_ident())
            clock.now = getattr(clock, "now", 0.0) + 0.25

        return work, 10.0

    found = limits._limit(hardware, prepare, seconds=1.0)
    assert found.rate == 40.0 * hardware.threads and found.spread == 0.0
    assert len(threads) == hardware.threads


def test_a_worker_that_fails_does_not_leave_the_others_waiting() -> None:
    calls = iter([lambda: None, None])

    def prepare() -> tuple[Callable[[], object], float]:
        work = next(calls)
        if work is None:
            raise MemoryError("no room")
        return work, 1.0

    with pytest.raises((MemoryError, threading.BrokenBarrierError)):
        limits._limit(TWO, prepare, seconds=0.001)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """What a call is said to do, beside what torch's counter sees it do."""
    from torch.utils.flop_counter import FlopCounterMode

    seen: list[tuple[float, int]] = []

    def look(
        hardware: Hardware, prepare: Callable[[], tuple[Callable[[], object], float]], _: float
    ) -> limits.Limit:
        work, amount = prepare()
        with FlopCounterMode(display=False) as counter:
            work()
        seen.append((amount, counter.get_total_flops()))
        return limits.Limit(1.0, 0.0, "")

    monkeypatch.setattr(limits, "_limit", look)
    return seen


def test_products_are_as_many_flops_as_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = counted(monkeypatch)
    limits._squares(CPU, 96, quick=True)
    # Not the kept figure of an earlier call.
    limits.model_limit.__wrapped__(CPU, load_preset("mini"), True)
    assert len(seen) == 2
    for said, found in seen:
        assert said == found > 0


def test_torch_is_left_with_the_threads_it_had() -> None:
    before = torch.get_num_threads()
    limits.shared_limit.__wrapped__(TWO, True)
    assert torch.get_num_threads() == before


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write"):
        limits.disk_limit(tmp_path / "file", 1, QUICK)


def test_the_disk_gets_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    limits.disk_limit(tmp_path, 2, QUICK._replace(written=2**23 + 2**22))
    # Two files a round, of whole blocks.
    assert len(synced) == 2 * limits.ROUNDS
    assert set(synced) == {2**22}
