"""--compile: when it is done by itself, the record of it, and one line where it cannot be done."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tape_arith.arith.decoders.cost import timed_config, training_flops
from tape_arith.arith.decoders.failures import explain_failures
from tape_arith.arith.documents import write_document
from tape_arith.arith.errors import Failure
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.options import Compute
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.record import Environment, RunRecord
from tape_arith.arith.training import compiling, session
from tape_arith.arith.training.compiling import CompilingTimes
from tape_arith.models import compiling as models_compiling
from tape_arith.models.compiling import compiling_failed
from tape_arith.models.hardware import Hardware
from tests.helpers.documents import ENVIRONMENT
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
        assert "compiling on a CPU needs a C++ compiler, and there is no" in message
    with monkeypatch.context() as patch, untouched(here):
        patch.setattr("tape_arith.models.compiling.ISOLATES", False)
        assert "needs torch 2.13 or newer" in refused(*TRAIN, "--compile")
    done(*TRAIN)
    environment = json.loads(Path("runs/mini/rope/seed-0/environment.json").read_text())
    assert environment["compiled"] is False


@pytest.fixture
def broken_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a GPU's compiler finds no C compiler."""

    def broken(graph: object, inputs: object) -> None:
        raise ValueError("Failed to find C compiler\nand so on")

    monkeypatch.setattr(models_compiling, "CPU_OPTIONS", {"backend": broken})
    monkeypatch.setattr(models_compiling, "why_not_compilable", lambda: None)


def test_a_compiler_that_fails_is_told_in_a_line(here: Path, broken_compiler: None) -> None:
    message = refused(*TRAIN, "--compile", code=1, after=True)
    assert "the decoder cannot be compiled here (Failed to find C compiler): " in message
    assert message.endswith("--no-compile does without")
    assert done(*TRAIN, "--no-compile").code == 0  # goes on where the other could not
    with untouched(here):
        done(*TRAIN)


@pytest.mark.parametrize("remembered", [False, True])
def test_a_compiler_that_fails_ends_no_training_that_did_not_ask_for_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, broken_compiler: None, remembered: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr(compiling, "MEASURED_FROM", 0)
    monkeypatch.setattr(compiling, "why_not_compilable", lambda: None)
    if remembered:
        monkeypatch.setattr(compiling, "compiling_times", lambda *of: _times(compiling=0.0))
    done(*TRAIN, "--no-compile", "--out", "plain")
    assert "--no-compile does without, which is taken now" in done(*TRAIN).err
    run, plain = (RunFolder(Path(root, "mini/rope/seed-0")) for root in ("runs", "plain"))
    assert run.final.read_bytes() == plain.final.read_bytes()
    assert not run.environment().compiled


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
    environment = json.loads(Path("parts/mini/rope/seed-0/environment.json").read_text())
    assert environment["compiled"] is True


def _times(**changes: float) -> CompilingTimes:
    """Times with which compiling pays after 400 steps."""
    times = {"plain_step": 0.4, "compiled_step": 0.3, "compiling": 40.0}
    return CompilingTimes(conditions={}, **{**times, **changes})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_measuring_changes_no_weights(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr(compiling, "MEASURED_FROM", 0)
    first, again = done(*TRAIN).err, done(*TRAIN, "--seed", "1").err
    assert "measuring a minute, once on this machine, whether compiling rope pays" in first
    assert "measuring" not in again
    for printed in (first, again):
        assert re.search(
            r"compiling does not pay here: it takes \d+ s, and 4 steps take [\d.]+", printed
        )
    assert len(list(Path("cache/tape-arith/compiling").glob("rope-*.json"))) == 1
    done(*TRAIN, "--no-compile", "--out", "plain")
    run, plain = (RunFolder(Path(root, "mini/rope/seed-0")) for root in ("runs", "plain"))
    assert run.final.read_bytes() == plain.final.read_bytes()


def test_times_are_remembered_for_the_same_machine_size_and_encoding(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    measure = Mock(return_value=_times().model_dump(exclude={"conditions"}))
    monkeypatch.setattr(compiling, "_measure", measure)
    config, hardware = load_preset("small-20"), Hardware("cpu", torch.float32, 2, "eager")
    same = replace(config, steps=10, learning_rate=0.5, weight_decay=0.0, num_problems=10)
    other_machine = replace(hardware, threads=1)

    def times(pe: str = "rope", config: Config = config, on: Hardware = hardware) -> CompilingTimes:
        return compiling.compiling_times(config, parse(pe), on)

    assert times() == times(config=same) == times()
    assert measure.call_count == 1
    for other in (
        times(pe="fire"),
        times(config=replace(config, batch_size=64)),
        times(config=replace(config, mlp_size=1024)),
        times(config=replace(config, trained_digits=10)),
        times(on=other_machine),
    ):
        assert other.conditions != times().conditions
    assert measure.call_count == 6
    for file in Path("cache/tape-arith/compiling").glob("*.json"):
        file.write_text("{")  # a damaged file is measured again
    capsys.readouterr()
    assert times() == times()
    assert measure.call_count == 7
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert times().plain_step == 0.4  # and the training goes on
    assert "note: not remembered: cannot write /proc/nowhere" in capsys.readouterr().err
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user without a home
    monkeypatch.setattr("tempfile.tempdir", "temporary")
    monkeypatch.setattr("filelock.BaseFileLock.acquire", Mock(side_effect=OSError("no locks")))
    assert times() == times()
    assert list(Path("temporary/tape-arith/compiling").glob("*.json"))


def test_too_little_memory_to_measure_ends_no_training(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr(compiling, "MEASURED_FROM", 0)
    monkeypatch.setattr(compiling, "why_not_compilable", lambda: None)
    monkeypatch.setattr(compiling, "_measure", Mock(side_effect=MemoryError))
    assert "note: not compiled: too little memory to measure" in done(*TRAIN).err
    assert not RunFolder(Path("runs/mini/rope/seed-0")).environment().compiled


def test_a_large_step_is_cut_to_be_timed() -> None:
    paper = load_preset("paper-20")
    cut, share = timed_config(paper, training_flops(paper) / paper.steps)
    assert cut == replace(paper, batch_size=round(share * paper.batch_size))
    assert training_flops(cut) / cut.steps < 1.2e11


@pytest.mark.parametrize(
    ("facts", "changes", "expected"),
    [
        ({}, {}, True),
        ({"measured": {"compiled_step": 0.395}}, {}, False),  # 4,000 steps save 20 s of 40
        ({"measured": {"compiling": 401.0}}, {}, False),
        ({"measured": {"compiling": 399.0}}, {}, True),
        ({}, {"steps": 100}, False),
        ({"asked": False}, {}, False),
        ({"asked": True}, {"steps": 100}, True),
        ({"device": "cuda"}, {}, None),  # where it is the default in any case
        ({"lacks": "needs a C++ compiler"}, {}, False),
        # A run that has begun goes on as it began, however long it is.
        ({"began": {"compiled": False}}, {}, False),
        ({"began": {"compiled": True}}, {"steps": 100}, True),
        ({"began": {"compiled": True}, "lacks": "needs a C++ compiler"}, {}, False),
        ({"began": {"compiled": True, "device": "cuda"}}, {}, False),
        ({"pe": "mine.py:Mine"}, {}, False),
    ],
)
def test_long_trainings_are_compiled_where_it_pays(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    facts: dict[str, Any],
    changes: dict[str, Any],
    expected: bool | None,
) -> None:
    Path("mine.py").write_text(
        "from tape_arith.models.encoding import PositionalEncoding\n\n\n"
        'class Mine(PositionalEncoding):\n    """Mine."""\n\n    kind = "none"\n'
    )
    device = Hardware(facts.get("device", "cpu"), torch.float32)
    monkeypatch.setattr(compiling, "detect", lambda *choice: device)
    monkeypatch.setattr(compiling, "why_not_compilable", lambda: facts.get("lacks"))
    times = _times(**facts.get("measured", {}))
    monkeypatch.setattr(compiling, "compiling_times", lambda *of: times)
    config = replace(load_preset("small-20"), **changes)
    record = RunRecord(facts.get("pe", "rope"), 0, "small-20", config, 1, config.steps, None, "1")
    folder = RunFolder(here / "run")
    if "began" in facts:
        write_document(folder.environment_file, ENVIRONMENT | facts["began"], Environment.kind)
    compute = Compute("eager", facts.get("asked"))
    chosen = compiling.choose_compiling(folder, record, compute)
    assert chosen == ("eager", expected)
    assert ("note: not compiled: that needs" in capsys.readouterr().err) == ("lacks" in facts)
