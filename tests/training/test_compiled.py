"""--compile: which presets ask for it, the record of it, and one line where it cannot be done."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tape_arith.arith.decoders.failures import explain_failures
from tape_arith.arith.errors import Failure
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.options import Compute, TrainOptions
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.record import Machine, RunRecord, run_sources
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training import session
from tape_arith.arith.training.distributed import ProcessGroup
from tape_arith.arith.training.session import Session
from tape_arith.models import compiling
from tape_arith.models.compiling import compiling_failed
from tape_arith.models.hardware import Hardware
from tests.helpers.documents import MACHINE
from tests.helpers.tiny_runs import done, refused, settings, untouched

# torch's own, in compiling
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]
TRAIN = ("train", "--pe", "rope", *settings(), "--no-score")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with --threads 1, which a process is told before it looks for the first time."""
    monkeypatch.setattr("tape_arith.models.hardware.cpu_threads", lambda: 1)


def test_without_a_compiler_or_with_an_older_torch_nothing_begins(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by CXX, which torch reads once for the whole process.
    with monkeypatch.context() as patch, untouched(here):
        patch.setattr(shutil, "which", lambda name: None)
        message = refused(*TRAIN, "--compile")
        assert "C++ compiler" in message
    with monkeypatch.context() as patch, untouched(here):
        patch.setattr("tape_arith.models.compiling.ISOLATES", False)
        assert "torch 2.13" in refused(*TRAIN, "--compile")
    done(*TRAIN)
    assert not Run(Path("runs/mini/rope/seed-0")).record().machines[-1].compiled


@pytest.fixture
def broken_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a GPU's compiler finds no C compiler."""

    def broken(graph: object, inputs: object) -> None:
        raise ValueError("Failed to find C compiler\nand so on")

    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"backend": broken})
    monkeypatch.setattr(compiling, "why_not_compilable", lambda: None)
    monkeypatch.setattr(session, "why_not_compilable", lambda: None)


def test_a_compiler_that_fails_is_told_in_a_line(here: Path, broken_compiler: None) -> None:
    message = refused(*TRAIN, "--compile", code=1, after=True)
    assert "C compiler" in message and "--no-compile" in message
    assert done(*TRAIN, "--no-compile").code == 0  # goes on where the other could not
    with untouched(here):
        done(*TRAIN)


def test_a_compiler_that_fails_ends_no_training_that_did_not_ask_for_it(
    here: Path, broken_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "asks_to_compile", lambda preset: True)
    assert "without compiling" in done(*TRAIN).err
    done(*TRAIN, "--no-compile", "--out", "plain")
    run, plain = (Run(Path(root, "mini/rope/seed-0")) for root in ("runs", "plain"))
    assert run.final.read_bytes() == plain.final.read_bytes()
    assert not run.record().machines[-1].compiled


def test_errors_of_compiling_are_told_from_others() -> None:
    from torch._dynamo.exc import TorchRuntimeError
    from torch._inductor.exc import InductorError

    # What is wrong in the code that blocks hold is no matter of compiling it.
    for error in (RuntimeError("in a kernel of torch._inductor"), TorchRuntimeError("shapes")):
        assert not compiling_failed(error)
        with pytest.raises(type(error)), explain_failures("x"):
            raise error
    reasons = RuntimeError("C++ compile error\n\nOutput:\na.cpp:1:10: fatal error: Python.h\nx")
    for reason, message in (
        (reasons, r"\(a\.cpp:1:10: fatal error: Python\.h\)"),
        (RuntimeError("out of memory"), "does not fit into memory"),
    ):
        with pytest.raises(Failure, match=message), explain_failures("x"):
            raise InductorError(reason, None)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_resumed_run_is_compiled_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Hardware("cpu", torch.float32, compiled=True)
    monkeypatch.setattr(session, "detect", lambda *choice: compiled)
    done(*TRAIN, "--compile", "--out", "whole")
    stopped = iter([False, True])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tape_arith.arith.stopping.Stopper.__call__", lambda self: next(stopped, True)
        )
        done(*TRAIN, "--compile", "--out", "parts")
    done(*TRAIN, "--compile", "--out", "parts")
    weights = "mini/rope/seed-0/weights/final.safetensors"
    assert Path("whole", weights).read_bytes() == Path("parts", weights).read_bytes()
    assert Run(Path("parts/mini/rope/seed-0")).record().machines[-1].compiled


@pytest.mark.parametrize(
    ("preset", "facts", "expected"),
    [
        ("small-20", {}, True),
        ("small-40", {}, True),  # as its base
        ("mini-long@sort", {}, True),
        ("mini", {}, False),
        ("theirs", {}, False),  # of another installation
        ("small-20", {"asked": False}, False),
        ("mini", {"asked": True}, True),
        ("mini", {"device": "cuda"}, None),  # where it is the default in any case
        ("small-20", {"processes": 2}, None),
        ("small-20", {"lacks": "needs a C++ compiler"}, False),
        # A run that has begun continues as it began.
        ("small-20", {"began": {"compiled": False}}, False),
        ("mini", {"began": {"compiled": True}}, True),
        ("mini", {"began": {"compiled": True}, "lacks": "needs a C++ compiler"}, False),
        ("mini", {"began": {"compiled": True, "device": "cuda"}}, False),
        ("small-20", {"pe": "mine.py:Mine"}, False),
    ],
)
def test_a_preset_may_ask_for_compiling(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    preset: str,
    facts: dict[str, Any],
    expected: bool | None,
) -> None:
    Path("mine.py").write_text(
        "from tape_arith.models.encoding import PositionalEncoding\n\n\n"
        'class Mine(PositionalEncoding):\n    """Mine."""\n\n    kind = "none"\n'
    )
    device = Hardware(facts.get("device", "cpu"), torch.float32)
    monkeypatch.setattr(session, "detect", lambda *choice: device)
    monkeypatch.setattr(session, "why_not_compilable", lambda: facts.get("lacks"))
    pe, config = facts.get("pe", "rope"), load_preset("small-20")
    sources = run_sources(parse(pe), config)
    record = RunRecord(pe, 0, preset, config, 1, config.steps, None, "1", sources)
    folder = Run(here / "run")
    folder.path.mkdir()
    folder.write_record(record)
    if "began" in facts:
        folder.update_record(machines=(Machine(**MACHINE | facts["began"]),))
    options = TrainOptions(compute=Compute("eager", facts.get("asked")))
    one = Session(folder, options, ProcessGroup(size=facts.get("processes", 1)))
    assert one._compute() == Compute("eager", expected)
    assert ("not compiled:" in capsys.readouterr().err) == ("lacks" in facts)
