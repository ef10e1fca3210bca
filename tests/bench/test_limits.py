"""The limits: that they are rates of what they say, and of all threads at once."""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.errors import Failure
from tape_arith.models.hardware import Hardware

CPU = Hardware("cpu", torch.float32)
TWO = Hardware("cpu", torch.float32, threads=2)


def test_products_are_the_same_whatever_computes_attention() -> None:
    low = Hardware("cpu", torch.bfloat16)
    sdpa = Hardware("cpu", torch.bfloat16, attention="sdpa", compiled=True)
    assert limits.product_limit(sdpa, quick=True) is limits.product_limit(low, quick=True)


@pytest.mark.parametrize("hardware", [CPU, TWO])
def test_a_rate_is_the_sum_over_threads(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that waits for that of every other thread; half a second by the clock."""
    threads: set[int] = set()
    all_at_once = threading.Barrier(hardware.threads)

    def prepare() -> Callable[[], object]:
        def work() -> None:
            threads.add(threading.get_ident())
            all_at_once.wait(60)

        return work

    def timed(calls: dict[str, Callable[[int], None]], *_: float, **__: float) -> dict[str, Any]:
        calls["all"](0)
        return {"all": [0.5]}

    monkeypatch.setattr(limits, "time_interleaved", timed)
    limit = limits._limit("sleep", "B/s", hardware, prepare, 10.0, quick=True)
    assert limit.value == 20.0 * hardware.threads
    assert len(threads - {threading.get_ident()}) == (hardware.threads if hardware == TWO else 0)
    assert limit.name.split()[1] == ("2" if hardware == TWO else "1")


def test_each_limit_is_measured_once_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "detect", lambda: TWO)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = Options(seconds=0, threads=2)
    first, second = list(limits.measure(options)), list(limits.measure(options))
    assert first == second
    assert all(line.value and line.value > 0 for line in first)
    names = [line.name for line in first]
    assert len(set(names)) == len(names)
    for limit in ("float32 products", "bfloat16 products", "disk write", "SHA-256"):
        assert len([name for name in names if name.startswith(limit)]) == 2
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(Failure, match="cannot write"):
        limits.disk_limit(3, quick=True)
