"""The doctor describes this machine, and recognizes machines that lack something."""

import json
import os
from pathlib import Path

import pytest
import torch

from tape_arith.arith import doctor, machine
from tape_arith.arith.doctor import Check
from tape_arith.models.backends import SDPA
from tape_arith.models.hardware import detect
from tests.helpers.tiny_runs import call, contents, done

Patch = pytest.MonkeyPatch


def test_this_machine(here: Path) -> None:
    content = json.loads(done("doctor", "--json").out)
    assert content["works"] and torch.__version__ in content["machine"]
    checks = {entry["name"]: Check(**entry) for entry in content["checks"]}
    for backend in ("eager", "sdpa"):
        assert checks[f"attention {backend}"].state == "ok"
    assert checks["attention flash-attn"].state == "missing"
    assert {"bfloat16", "compiler", "attention auto"} <= set(checks)
    assert contents(here) == {}  # nothing is left behind


def test_a_broken_check_exits_with_1(monkeypatch: Patch) -> None:
    broken = Check("attention x", "broken", "differs", "report it")
    monkeypatch.setattr(doctor, "describe_machine", lambda: "a machine")
    monkeypatch.setattr(doctor, "examine", lambda: iter([Check("a", "ok", "b"), broken]))
    result = call("doctor")
    assert result.code == 1 and result.err == ""
    first, *lines, last = result.out.splitlines()
    assert first == "a machine" and "\n".join(lines) == f"ok       a: b\n{broken}"
    assert str(broken).split() == ["broken", "attention", "x:", "differs", "->", "report", "it"]
    assert last == "1 ok, 0 slow, 0 missing, 1 broken"


def test_backend_that_is_wrong_or_fails(monkeypatch: Patch) -> None:
    correct, hardware = SDPA.__call__, detect()

    def wrong(self: SDPA, q: torch.Tensor, *rest: object, **more: object) -> object:
        (heads,) = correct(self, q, *rest, **more)  # type: ignore[arg-type]
        return (heads + 0.2 * q,)

    monkeypatch.setattr(SDPA, "__call__", wrong)
    assert "plain products" in doctor._attention("sdpa", hardware).result

    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(SDPA, "__call__", fails)
    check = doctor._attention("sdpa", hardware)
    assert (check.state, check.result) == ("broken", "RuntimeError: no kernel image is available")


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000 100000", 1.5), ("max 100000", 8.0), (None, 8.0)]
)
def test_cores(tmp_path: Path, monkeypatch: Patch, limit: str | None, cores: float) -> None:
    if limit is not None:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert machine.usable_cores() == cores


@pytest.mark.parametrize(
    ("limit", "available"), [("max", 2048), ("5000", 2048), ("2500", 1700), (None, 2048)]
)
def test_memory_that_may_still_be_taken(
    tmp_path: Path, monkeypatch: Patch, limit: str | None, available: int
) -> None:
    """1,000 bytes are used, of which 200 are of files that were read."""
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    assert machine.available_memory() is None
    (tmp_path / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:  2 kB\nHugePages_Total:  0\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("1000\n")
        (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 200\n")
    assert machine.available_memory() == available
