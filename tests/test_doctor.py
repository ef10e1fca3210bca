"""What the doctor says of machines that lack something, and that it says it of this one."""

import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tape_arith.arith.commands.doctor import show
from tape_arith.arith.doctor import backends, disk, doctor, machine, software
from tape_arith.arith.doctor.finding import STATES, Finding
from tape_arith.models.backends.sdpa import SDPA
from tape_arith.models.hardware import detect
from tests.helpers.tiny_runs import call, contents, done

Patch = pytest.MonkeyPatch


def of(findings: list[Finding], what: str) -> Finding:
    (finding,) = (finding for finding in findings if finding.what == what)
    return finding


def test_this_machine(here: Path) -> None:
    told = json.loads(done("doctor", "--json", "--preset", "mini").out)
    assert set(told) == {"schema", "works", "findings"} and told["works"]
    found = {entry["what"]: entry for entry in told["findings"]}
    for entry in found.values():
        assert set(entry) == {"what", "state", "found", "mend"} and entry["state"] in STATES
        assert bool(entry["mend"]) == (entry["state"] != "ok")
    # torch is not imported for it: a build may call itself something longer than its package.
    assert torch.__version__.startswith(found["torch"]["found"])
    for backend in ("eager", "sdpa"):
        assert found[f"attention {backend}"]["state"] == "ok"
    assert found["attention flash-attn"]["state"] == "missing"
    assert {"Python", "threads", "bfloat16", "GPU", "memory", "clock", "compiler"} <= set(found)
    assert contents(here) == {}  # it leaves nothing behind


def test_plain_when_piped(here: Path) -> None:
    lines = done("doctor").out.splitlines()
    assert any(line.startswith("ok       Python: ") for line in lines)
    assert all(line.split()[0] in (*STATES, "->") for line in lines[:-1])
    assert lines[-1].endswith(" 0 broken")


def test_what_is_broken_is_an_exit_code(here: Path) -> None:
    Path("file").touch()
    result = call("doctor", "--runs", "file/runs")
    assert result.code == 1 and "broken   writing to file/runs: cannot write" in result.out
    assert result.err == ""


def test_a_table_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show([Finding("GPU", "missing", "none", "buy [one]"), Finding("Python", "ok", "3.11")])
    assert "buy [one]" in capsys.readouterr().out  # no markup of what is found


def test_packages(monkeypatch: Patch) -> None:
    there = {"torch": "2.5.1+cpu", "numpy": None, "wandb": None, "ray": "2.9"}
    monkeypatch.setattr(software, "_version", lambda name: there.get(name, "99"))
    found = software.software()
    assert of(found, "torch").state == "broken" and "2.5.1+cpu, where >=2.6" in str(found)
    assert of(found, "numpy") == Finding(
        "numpy", "broken", "not installed", "pip install 'numpy>=1.26'"
    )
    assert of(found, "wandb").state == "missing" and of(found, "ray").state == "ok"
    monkeypatch.setattr(platform, "python_version", lambda: "3.10.2")
    assert of(software.software(), "Python").state == "broken"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, 8.0),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8.0),
        ({}, 8.0),
    ],
)
def test_cores(tmp_path: Path, monkeypatch: Patch, files: dict[str, str], cores: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert machine.usable_cores() == cores
    wanted = max(1, int(cores))
    assert machine._threads(wanted).state == "ok"
    assert f"OMP_NUM_THREADS={wanted}" in machine._threads(wanted + 1).mend
    assert machine._threads(wanted + 1).state == "slow"


def test_memory(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    free, limit = machine.available_memory()
    assert free > 0 and limit is None
    (tmp_path / "memory.max").write_text("1500000000\n")
    (tmp_path / "memory.current").write_text("500000000\n")
    assert machine.available_memory() == (1_000_000_000, 1_500_000_000)
    assert machine._memory().state == "slow"
    assert machine._memory().found == "1 GB available, 1.5 GB is the limit"


def test_a_gpu_that_is_not_used(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "version")
    assert machine._gpu().state == "missing"
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version\n"
    (tmp_path / "version").write_text(said)
    hidden = machine._gpu()
    assert hidden.state == "missing" and "unset CUDA_VISIBLE_DEVICES" in hidden.mend
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert machine._gpu().state == "slow" and "driver 550.54.15" in machine._gpu().found
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert machine._gpu().state == "broken"


def test_a_compiler(monkeypatch: Patch) -> None:
    monkeypatch.setenv("CXX", "c+++")
    monkeypatch.setenv("CC", "ccc")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert machine._compiler("cpu") == Finding("compiler", "ok", "/bin/c+++")
    assert machine._compiler("cuda") == Finding("compiler", "ok", "/bin/ccc")
    monkeypatch.setattr(shutil, "which", lambda name: "clang" if name == "clang" else None)
    assert machine._compiler("cuda").found == "no ccc"  # nothing else is tried then
    monkeypatch.delenv("CC")
    assert machine._compiler("cuda").found == "clang"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    missing = machine._compiler("cpu")  # of an option: nothing is broken
    assert (missing.state, missing.found) == ("missing", "no c+++") and "CXX" in missing.mend
    broken = machine._compiler("cuda")
    assert (broken.state, broken.found) == ("broken", "no gcc and no clang") and "CC" in broken.mend


def test_a_backend_that_is_wrong_or_fails(monkeypatch: Patch) -> None:
    right = SDPA.__call__
    hardware = detect()
    assert backends._backend("sdpa", hardware).state == "ok"

    def off(self: SDPA, q: torch.Tensor, *rest: object, **more: object) -> object:
        (heads,) = right(self, q, *rest, **more)  # type: ignore[arg-type]
        return (heads + 0.2 * q,)

    monkeypatch.setattr(SDPA, "__call__", off)
    assert "differs from plain products" in backends._backend("sdpa", hardware).found

    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(SDPA, "__call__", fails)
    told = backends._backend("sdpa", hardware)
    assert (told.state, told.found) == ("broken", "RuntimeError: no kernel image is available")


def test_the_disk(here: Path, monkeypatch: Patch) -> None:
    folders = [here / "a" / "runs", here / "data"]
    assert {finding.state for finding in disk.disk("mini", folders)} == {"ok"}
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    assert of(disk.disk("mini", folders), f"space for {folders[0]}").state == "broken"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 100)
    assert of(disk.disk("mini", folders), "clock").state == "broken"
    assert list(here.iterdir()) == []


def test_what_a_preset_needs_grows_with_it() -> None:
    (mini, mini_data), (paper, paper_data) = disk.needed("mini"), disk.needed("paper-40")
    assert 5e6 < mini < 1e8 and 1e9 < paper < 1e10
    assert 5e6 < mini_data < 2e7 and 5e8 < paper_data < 4e9


def test_without_torch_the_rest_is_told(here: Path, monkeypatch: Patch) -> None:
    for name in ("machine", "backends", "disk"):
        monkeypatch.delitem(sys.modules, f"tape_arith.arith.doctor.{name}")
        monkeypatch.setitem(sys.modules, f"tape_arith.arith.doctor.{name}", None)
    found = list(doctor.examine("mini", here / "runs", here / "data"))
    assert of(found, "Python").state == "ok"
    assert [f.what for f in found if f.state == "broken"] == ["machine", "attention", "disk"]
    assert not doctor.works(found)
