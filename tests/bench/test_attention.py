"""Backends of attention side by side: every one has a time or a reason."""

import re
from dataclasses import replace
from itertools import product

import pytest
import torch

from tape_arith.arith.bench import attention
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.decoders.build import setting_for
from tape_arith.arith.registry.names import parse, parse_list
from tape_arith.arith.runs.options import Compute
from tape_arith.arith.runs.preset import load_preset
from tape_arith.models.attention import Eager, Needs
from tape_arith.models.backends import BACKENDS, load_backend
from tape_arith.models.hardware import Hardware
from tests.helpers.small_decoders import build, counted

CPU = Hardware("cpu", torch.float32)
CONFIG = replace(load_preset("mini"), num_heads=2, head_dim=8)
QUICK = Options(seconds=0)


def test_every_backend_has_a_time_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # set by the tests of kernels
    names = ("rope", "fire", "tape", "cope")
    options = replace(QUICK, encodings=tuple(map(parse, names)))
    lines = {line.name: line for line in attention.measure(options)}
    needs_of = {name: build(name, setting_for(CONFIG)).needs for name in names}
    assert needs_of.pop("cope").bias == "scores" and lines["cope, 8 tokens"].value is None
    for encoding, needs in needs_of.items():
        for name in BACKENDS:
            time = lines[f"{encoding}, 8 tokens: {name}"]
            reason = load_backend(name).why_unsupported(needs, CPU)
            if reason is not None:
                assert time.value is None and time.note == f"{name} {reason}"
                continue
            rate = lines[f"{encoding}, 8 tokens: {name}, useful FLOPs"]
            assert time.value and time.limit_name == "eager"
            assert (time.ratio == 1) >= (name == "eager")
            flops = attention._useful_flops(needs, 3, 8, CONFIG)  # three rows of eight tokens
            assert rate.value == pytest.approx(flops / time.value)
            assert "products" in str(rate.limit_name) and "1 thread" in str(rate.limit_name)


def test_lengths_encodings_and_backends_of_the_options() -> None:
    options = replace(QUICK, encodings=tuple(parse_list("tape,rope,nope")), lengths=(3, 5))
    options = replace(options, compute=Compute("sdpa", None))
    names = {tuple(re.split(r"[ ,:]+", line.name)[:4]) for line in attention.measure(options)}
    parts = product(("tape", "rope/nope"), ("3", "5"), ["tokens"], ("eager", "sdpa"))
    assert names == set(parts)


@pytest.mark.parametrize("needs", [Needs(), Needs(values=3), Needs(bias="learned")])
def test_useful_flops_are_half_of_the_square(needs: Needs) -> None:
    """Eager computes the whole square: T^2 where T (T + 1) / 2 are of use."""
    step = attention._make_step(Eager(), needs, 3, 8, CONFIG, CPU)
    useful = attention._useful_flops(needs, 3, 8, CONFIG)
    assert useful * 8**2 == counted(lambda: step(0)) * (8 * 9 // 2)


def test_a_refusal_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("takes 4\ntokens")

    monkeypatch.setattr(type(load_backend("sdpa")), "__call__", refuse)
    lines = list(attention.measure(replace(QUICK, encodings=(parse("rope"),))))
    (line,) = [line for line in lines if line.name == "rope, 8 tokens: sdpa"]
    assert line.value is None and line.note == "takes 4 tokens"
    assert any(line.name.endswith("eager") and line.value for line in lines)
