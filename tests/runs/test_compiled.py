"""--compile: the record of it, and one line where it cannot be done."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tape_arith.arith.errors import Failure
from tape_arith.arith.runs import build
from tape_arith.arith.training.step import explain_failures
from tape_arith.models.build import compiling_failed
from tape_arith.models.decoder import Block
from tape_arith.models.hardware import Hardware
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
        assert "--compile needs a C++ compiler, and there is no" in message
    with monkeypatch.context() as patch, untouched(here):
        patch.setattr("tape_arith.models.build.ISOLATES", False)
        assert "needs torch 2.13 or newer" in refused(*TRAIN, "--compile")
    done(*TRAIN)
    environment = json.loads(Path("runs/mini/rope/seed-0/environment.json").read_text())
    assert environment["compiled"] is False


def test_a_compiler_that_fails_is_told_in_a_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a GPU's compiler finds no C compiler."""

    def compiled(self: Block, **options: object) -> None:
        torch.nn.Module.compile(self, backend=broken)

    def broken(graph: object, inputs: object) -> None:
        raise ValueError("Failed to find C compiler\nand so on")

    monkeypatch.setattr(Block, "compile", compiled)
    message = refused(*TRAIN, "--compile", code=1, after=True)
    assert "the decoder cannot be compiled here (Failed to find C compiler): " in message
    assert message.endswith("--no-compile does without")
    assert done(*TRAIN, "--no-compile").code == 0  # goes on where the other could not
    with untouched(here):
        done(*TRAIN)


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
    monkeypatch.setattr(
        build, "detect", lambda *choice: Hardware("cpu", torch.float32, 1, "auto", True)
    )
    done(*TRAIN, "--compile", "--out", "whole")
    stopped = iter([False, True])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tape_arith.arith.terminal.Stopper.__call__", lambda self: next(stopped, True)
        )
        done(*TRAIN, "--compile", "--out", "parts")
    done(*TRAIN, "--compile", "--out", "parts")
    weights = "mini/rope/seed-0/weights/final.safetensors"
    assert Path("whole", weights).read_bytes() == Path("parts", weights).read_bytes()
    environment = json.loads(Path("parts/mini/rope/seed-0/environment.json").read_text())
    assert environment["compiled"] is True
