"""The lines of the limits: all of them there, of one thread and of all, the same twice in a run."""

from pathlib import Path

import pytest
import torch

from tape_arith.arith.bench import ceilings
from tape_arith.arith.bench.ceilings import one_and_all
from tape_arith.arith.bench.measure import Options
from tape_arith.models.hardware import Hardware

CPU = Hardware("cpu", torch.float32)
TWO = Hardware("cpu", torch.float32, threads=2)


def test_each_limit_is_measured_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = Options(quick=True, directory=tmp_path, threads=2)
    first, second = list(ceilings.measure(options)), list(ceilings.measure(options))
    assert first == second
    assert all(line.value and line.value > 0 and line.repeats == 3 for line in first)
    names = [line.name for line in first]
    assert len(set(names)) == len(names)
    for what in ("float32 products", "bfloat16 products", "memory copy", "disk write", "SHA-256"):
        assert any(name.startswith(what) for name in names)
    assert list(tmp_path.iterdir()) == []


def test_one_and_all() -> None:
    assert one_and_all(CPU) == [CPU]
    assert [some.threads for some in one_and_all(TWO)] == [1, 2]
