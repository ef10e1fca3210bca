"""The doctor describes this machine, and recognizes machines that lack something."""

import json
import os
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tape_arith.arith import doctor, machine
from tape_arith.arith.doctor import STATES, Check
from tape_arith.models.backends import SDPA
from tape_arith.models.hardware import detect
from tests.helpers.tiny_runs import call, contents, done

Patch = pytest.MonkeyPatch


def test_this_machine(here: Path) -> None:
    content = json.loads(done("doctor", "--json", "--preset", "mini").out)
    assert content["works"]
    checks = {entry["name"]: Check(**entry) for entry in content["checks"]}
    for backend in ("eager", "sdpa"):
        assert checks[f"attention {backend}"].state == "ok"
    assert checks["attention flash-attn"].state == "missing"
    assert {"Python", "torch", "threads", "bfloat16", "GPU", "compiler"} <= set(checks)
    assert contents(here) == {}  # nothing is left behind


def test_broken_checks_exit_with_1_and_a_line_each(here: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(doctor, "_import_error", OSError("libcudart.so:\nno such file"))
    result = call("doctor")
    lines = result.out.splitlines()
    assert result.code == 1 and result.err == ""
    assert lines[-3] == "broken   machine: libcudart.so: no such file"
    assert all(line.split()[0] in (*STATES, "->") for line in lines[:-1])
    assert lines[-1].endswith(" 1 broken")


def test_packages_too_old_or_absent(monkeypatch: Patch) -> None:
    installed = {"torch": "2.5.1+cpu", "numpy": None, "wandb": None}
    version = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: installed[name] if name in installed else version(name)
    )
    monkeypatch.setattr(platform, "python_version", lambda: "3.10.2")
    states = {check.name: check.state for check in doctor._packages()}
    assert states.pop("wandb") == "missing"
    broken = {name for name, state in states.items() if state == "broken"}
    assert broken == {"Python", "torch", "numpy"}


@pytest.mark.parametrize(("threads", "fix"), [(1, "OMP_NUM_THREADS=2 uses"), (2, ""), (3, "=2: ")])
def test_threads(monkeypatch: Patch, threads: int, fix: str) -> None:
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2.5)
    assert fix in doctor._threads(threads).fix
    assert doctor._threads(threads).state == ("slow" if fix else "ok")


def test_gpu_that_torch_does_not_use(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(doctor, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert doctor._gpu().result == "none"
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version\n"
    (tmp_path / "version").write_text(text)
    for cuda, state in ((None, "slow"), ("12.8", "broken")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert doctor._gpu().state == state and "driver 550.54.15" in doctor._gpu().result
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "unset CUDA_VISIBLE_DEVICES" in doctor._gpu().fix


def test_backend_that_is_wrong_or_fails(monkeypatch: Patch) -> None:
    correct, hardware = SDPA.__call__, detect()

    def wrong(self: SDPA, q: torch.Tensor, *rest: object, **more: object) -> object:
        (heads,) = correct(self, q, *rest, **more)  # type: ignore[arg-type]
        return (heads + 0.2 * q,)

    monkeypatch.setattr(SDPA, "__call__", wrong)
    assert "differs from plain products" in doctor._attention("sdpa", hardware).result

    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(SDPA, "__call__", fails)
    check = doctor._attention("sdpa", hardware)
    assert (check.state, check.result) == ("broken", "RuntimeError: no kernel image is available")


def test_disk_that_is_full_or_refuses(here: Path, monkeypatch: Patch) -> None:
    folders = here / "a" / "runs", here / "data"
    assert {check.state for check in doctor._disk("mini", *folders)} == {"ok"}
    assert list(here.iterdir()) == []
    (here / "file").touch()
    states = [check.state for check in doctor._disk("mini", here / "file/runs", here)]
    assert states == ["broken", "ok", "ok", "ok"]
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    states = [check.state for check in doctor._disk("mini", *folders)]
    assert states == ["ok", "broken"] * 2


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, 8.0),
        ({}, 8.0),
    ],
)
def test_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: float
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
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
