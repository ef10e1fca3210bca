"""The doctor describes this machine, and recognizes machines that lack something."""

import json
import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tape_arith.arith.commands.doctor import show
from tape_arith.arith.doctor import doctor, machine
from tape_arith.arith.doctor.doctor import STATES, Check
from tape_arith.models.backends.sdpa import SDPA
from tape_arith.models.hardware import detect
from tests.helpers.tiny_runs import call, contents, done

Patch = pytest.MonkeyPatch


def test_this_machine(here: Path) -> None:
    content = json.loads(done("doctor", "--json", "--preset", "mini").out)
    assert content["works"]
    checks = {entry["name"]: Check(**entry) for entry in content["checks"]}
    # torch is not imported for it: a build may call itself something longer than its package.
    assert torch.__version__.startswith(checks["torch"].result)
    for backend in ("eager", "sdpa"):
        assert checks[f"attention {backend}"].state == "ok"
    assert checks["attention flash-attn"].state == "missing"
    assert {"Python", "threads", "bfloat16", "GPU", "compiler", "space for runs"} <= set(checks)
    assert contents(here) == {}  # nothing is left behind


def test_broken_checks_exit_with_1_and_a_line_each(here: Path) -> None:
    Path("file").touch()
    result = call("doctor", "--runs", "file/runs")
    assert result.code == 1 and result.err == ""
    lines = result.out.splitlines()
    assert any(line.startswith("broken   writing to file/runs: ") for line in lines)
    assert all(line.split()[0] in (*STATES, "->") for line in lines[:-1])
    assert lines[-1].endswith(" 1 broken")


def test_table_shows_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show([Check("GPU", "missing", "none", "buy [one]"), Check("Python", "ok", "3.11")])
    assert "buy [one]" in capsys.readouterr().out


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


def test_packages_are_checked_without_torch(here: Path, monkeypatch: Patch) -> None:
    monkeypatch.delattr("tape_arith.arith.doctor.machine")
    monkeypatch.setitem(sys.modules, "tape_arith.arith.doctor.machine", None)
    checks = list(doctor.examine("mini", here / "runs", here / "data"))
    assert checks[0] == Check("Python", "ok", platform.python_version())
    assert [check.name for check in checks if check.state == "broken"] == ["machine"]


@pytest.mark.parametrize(("threads", "fix"), [(1, "OMP_NUM_THREADS=2 uses"), (2, ""), (3, "=2: ")])
def test_threads(monkeypatch: Patch, threads: int, fix: str) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 2.5)
    assert fix in machine._threads(threads).fix
    assert machine._threads(threads).state == ("slow" if fix else "ok")


def test_gpu_that_torch_does_not_use(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine._gpu().result == "none"
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version\n"
    (tmp_path / "version").write_text(text)
    for cuda, state in ((None, "slow"), ("12.8", "broken")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert machine._gpu().state == state and "driver 550.54.15" in machine._gpu().result
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "unset CUDA_VISIBLE_DEVICES" in machine._gpu().fix


def test_compiler_of_each_device(monkeypatch: Patch) -> None:
    monkeypatch.setenv("CXX", "c+++")
    monkeypatch.setenv("CC", "ccc")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert machine._compiler("cpu").result == "/bin/c+++"
    assert machine._compiler("cuda").result == "/bin/ccc"
    monkeypatch.setattr(shutil, "which", lambda name: "clang" if name == "clang" else None)
    assert machine._compiler("cpu").state == "missing"  # --compile is optional there
    assert machine._compiler("cuda").result == "no ccc"  # nothing else is tried then
    monkeypatch.delenv("CC")
    assert machine._compiler("cuda").result == "clang"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert machine._compiler("cuda").state == "broken"


def test_backend_that_is_wrong_or_fails(monkeypatch: Patch) -> None:
    correct, hardware = SDPA.__call__, detect()
    assert machine._backend("sdpa", hardware).state == "ok"

    def wrong(self: SDPA, q: torch.Tensor, *rest: object, **more: object) -> object:
        (heads,) = correct(self, q, *rest, **more)  # type: ignore[arg-type]
        return (heads + 0.2 * q,)

    monkeypatch.setattr(SDPA, "__call__", wrong)
    assert "differs from plain products" in machine._backend("sdpa", hardware).result

    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(SDPA, "__call__", fails)
    check = machine._backend("sdpa", hardware)
    assert (check.state, check.result) == ("broken", "RuntimeError: no kernel image is available")


def test_disk_that_is_full(here: Path, monkeypatch: Patch) -> None:
    folders = here / "a" / "runs", here / "data"
    assert {check.state for check in machine.disk("mini", *folders)} == {"ok"}
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    states = [check.state for check in machine.disk("mini", *folders)]
    assert states == ["ok", "broken"] * 2 and list(here.iterdir()) == []


def test_bytes_needed_grow_with_the_preset() -> None:
    (mini, mini_data), (paper, paper_data) = map(machine._bytes_needed, ("mini", "paper-40"))
    assert 5e6 < mini < 1e8 and 1e9 < paper < 1e10
    assert 5e6 < mini_data < 2e7 and 5e8 < paper_data < 4e9
