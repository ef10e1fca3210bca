"""Backends of attention side by side: every one is there, with a time or a reason."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tape_arith.arith.bench import attention
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.build import setting_for
from tape_arith.arith.runs.record import load_preset
from tape_arith.models import backends
from tape_arith.models.attention import Backend, Eager, Needs
from tape_arith.models.backends import BACKENDS
from tape_arith.models.build import build
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import parse, parse_list
from tests.helpers.flops import counted

CPU = Hardware("cpu", torch.float32)
CONFIG = replace(load_preset("mini"), num_heads=2, head_dim=8)
QUICK = Options(quick=True)


def lines_of(lines: list[Result], who: str) -> dict[str, Result]:
    return {line.name: line for line in lines if line.name.startswith(who)}


def test_every_backend_has_a_time_or_a_reason() -> None:
    lines = list(attention.measure(QUICK))
    for needs, who in attention.group_by_needs((), CONFIG).items():
        if needs.bias == "scores":
            (own,) = lines_of(lines, who).values()
            assert own.value is None and "attention of their own" in own.note
            continue
        for name in BACKENDS:
            reason = attention.why_unmeasured(backends.load(name), needs, CPU)
            if reason is not None:
                assert lines_of(lines, who)[f"{who}: {name}"].note == f"{name} {reason}"
                continue
            time, rate = (
                lines_of(lines, who)[f"{who}, 8 tokens: {name}{what}"]
                for what in ("", ", useful FLOPs")
            )
            assert time.value is not None and time.value > 0 and rate.value is not None
            assert time.limit_name == "eager" and (time.ratio == 1) >= (name == "eager")
            assert "products" in str(rate.limit_name) and "1 thread" in str(rate.limit_name)
            # Three rows of eight tokens.
            flops = attention.useful_flops(needs, 3, 8, replace(CONFIG, num_heads=2, head_dim=8))
            assert rate.value == pytest.approx(flops / time.value)


def test_what_the_interpreter_runs_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    reason = attention.why_unmeasured(backends.load("fused"), Needs(), CPU)
    assert reason is not None and reason.startswith("needs a CUDA GPU")
    assert os.environ["TRITON_INTERPRET"] == "1"


def test_encodings_that_ask_for_the_same_are_one() -> None:
    groups = attention.group_by_needs((), CONFIG)
    needs = {
        build(name, setting_for(CONFIG)).needs._replace(width=CONFIG.head_dim)
        for name in known_names("encoding")
    }
    assert set(groups) == needs and len(set(groups.values())) == len(needs)
    chosen = attention.group_by_needs(parse_list("tape,rope,nope"), CONFIG)
    assert set(chosen.values()) == {"tape", "rope/nope"}


def test_lengths_and_encodings_are_those_asked_for() -> None:
    options = replace(QUICK, encodings=(parse("tape"),), lengths=(3, 5))
    measured = [line.name for line in attention.measure(options) if line.value is not None]
    assert {name.split(":")[0] for name in measured} == {"tape, 3 tokens", "tape, 5 tokens"}


def test_one_backend_beside_eager() -> None:
    options = replace(QUICK, encodings=(parse("rope"),), attention="sdpa")
    found = {line.name.split(": ")[1].split(",")[0] for line in attention.measure(options)}
    assert found == {"eager", "sdpa"}
    with pytest.raises(UsageError, match="unknown attention backend 'spda': did you mean 'sdpa'"):
        list(attention.measure(replace(QUICK, attention="spda")))


@pytest.mark.parametrize("needs", [Needs(), Needs(values=3), Needs(bias="learned")])
def test_useful_flops_are_half_of_the_square(needs: Needs) -> None:
    """What eager computes is the whole square: T^2 where T (T + 1) / 2 are of use."""
    step = attention.make_step(Eager(), needs, 3, 8, CONFIG, CPU)
    useful = attention.useful_flops(needs, 3, 8, CONFIG)
    assert useful * 8**2 == counted(lambda: step(0)) * (8 * 9 // 2)


class Recording(Eager):
    """What a backend is given."""

    calls: tuple[tuple[Tensor, ...], Tensor | None]

    def __call__(self, q, k, values, seqs, *, scale=None, bias=None):  # type: ignore[no-untyped-def]
        self.calls = ((q, k, *values), bias)
        return super().__call__(q, k, values, seqs, scale=scale, bias=bias)


@pytest.mark.parametrize("bias", ["none", "fixed", "learned"])
def test_what_a_backend_is_given(bias: str) -> None:
    backend = Recording()
    hardware = replace(CPU, dtype=torch.bfloat16)
    result = attention.make_step(backend, Needs(3, bias), 2, 5, CONFIG, hardware)(0)
    tensors, given = backend.calls
    assert [tensor.shape for tensor in tensors] == [(2, 5, 2, 8)] * 5
    low, full = torch.bfloat16, torch.float32
    assert [tensor.dtype for tensor in tensors] == [low, low, low, full, full]
    assert (given is None) == (bias == "none")
    assert isinstance(result, tuple) and len(result) == 5 + (bias == "learned")
    assert all(float(gradient.abs().max()) > 0 for gradient in result[2:])
    if given is not None:
        assert given.shape == (1, 2, 5, 5) and given.requires_grad == (bias == "learned")


def refuses(error: Exception) -> Callable[..., tuple[Tensor, ...]]:
    def call(*_: object, **__: object) -> tuple[Tensor, ...]:
        raise error

    return call


@pytest.mark.parametrize(
    "error", [UsageError("takes 4 tokens at most"), RuntimeError("takes 4\ntokens at most")]
)
def test_a_refusal_is_a_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    sdpa = type(backends.load("sdpa"))
    assert issubclass(sdpa, Backend)
    monkeypatch.setattr(sdpa, "__call__", refuses(error))
    lines = list(attention.measure(replace(QUICK, encodings=(parse("rope"),))))
    (line,) = [line for line in lines if line.name == "rope, 8 tokens: sdpa"]
    assert line.value is None and line.note == "takes 4 tokens at most"
    assert any(line.name == "rope, 8 tokens: eager" and line.value for line in lines)
