"""Check what this machine computes with; each check has a result and, where needed, a fix.

Legend: B batch, T tokens, H heads, K head dim.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.collect_env import get_pretty_env_info

from tape_arith.models.attention import Backend, Needs
from tape_arith.models.backends import BACKENDS, choose_backend, load_backend
from tape_arith.models.compiling import cxx
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.sequences import Sequences

STATES = ("ok", "slow", "missing", "broken")
"""In this order: it works; works but could be faster; is absent and not required; fails."""


@dataclass(frozen=True)
class Check:
    """The result of one check: its state (one of STATES), an observation, and how to fix it."""

    name: str
    state: str
    result: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<8} {self.name}: {self.result}"
        return line + (f"\n{'':8} -> {self.fix}" if self.fix else "")


def describe_machine() -> str:
    """Return versions, processor, GPU and driver, as torch collects them for reports of bugs."""
    return str(get_pretty_env_info())


def examine() -> Iterator[Check]:
    """Run all checks."""
    hardware = detect()
    if hardware.dtype_name == "bfloat16":
        yield Check("bfloat16", "ok", f"in hardware ({hardware.name})")
    else:
        result = f"not in hardware ({hardware.name}): products are computed in float32"
        fix = "a processor with AVX512-BF16 or AMX, or a GPU from Ampere on, is faster"
        yield Check("bfloat16", "slow", result, fix)
    yield _compiler(hardware.device)
    for name in BACKENDS:
        yield _attention(name, hardware)
    chosen = choose_backend("auto", Needs(packed=False), hardware).name
    yield Check("attention auto", "ok", f"takes {chosen} for RoPE here")


def _compiler(device: str) -> Check:
    """Find the compiler that compiled blocks need: C++ on a CPU, C on a GPU (for Triton)."""
    # If CC is set, Triton tries no other compiler.
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if device == "cpu":
        names = [cxx()]
    path = next(filter(None, map(shutil.which, names)), None)
    if path is not None:
        return Check("compiler", "ok", path)
    if device == "cpu":
        fix = "long trainings are slower without one for C++: install g++, or name one in CXX"
        return Check("compiler", "missing", f"no {names[0]}", fix)
    fix = "install gcc, or name one in CC; --no-compile --backend sdpa works without, slowly"
    return Check("compiler", "broken", f"no {' and no '.join(names)}", fix)


def _attention(backend_name: str, hardware: Hardware) -> Check:
    """Run an attention backend forward and backward, and compare it with the eager backend."""
    name, fix = f"attention {backend_name}", "choose another with --backend, and report it"
    # Kernels of other packages may raise any exception.
    try:
        backend = load_backend(backend_name)
        reason = backend.why_unsupported(Needs(packed=False), hardware)
        if reason is not None:
            return Check(name, "missing", reason, "other backends are used instead")
        difference = _disagreement(backend, hardware)
    except Exception as error:
        result = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Check(name, "broken", result, fix)
    if not difference <= (5e-2 if hardware.dtype_name == "bfloat16" else 1e-4):  # true of NaN too
        return Check(name, "broken", f"differs from plain products by {difference:.2g}", fix)
    result = f"forward and backward agree with plain products to {difference:.1g}"
    return Check(name, "ok", f"{result} ({hardware.dtype_name})")


def _disagreement(backend: Backend, hardware: Hardware) -> float:
    """Return the largest absolute difference of outputs and gradients from `eager` in float32."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 32, 2, 64)  # B, T, H, K
    inputs = [torch.randn(shape, generator=generator).to(hardware.device) for _ in range(4)]
    inputs = [x.to(hardware.dtype) for x in inputs]
    lengths = torch.full(shape[:1], shape[1], device=hardware.device)
    ids = torch.zeros(shape[:2], dtype=torch.long, device=hardware.device)
    seqs = Sequences(ids, final_length=lengths, key=lengths)

    def heads_and_gradients(backend: Backend, inputs: list[Tensor]) -> list[Tensor]:
        *leaves, direction = (x.detach().clone().requires_grad_() for x in inputs)
        q, k, v = leaves
        (heads,) = backend(q, k, (v,), seqs)
        return [heads.detach(), *torch.autograd.grad((heads * direction).sum(), leaves)]

    actual = heads_and_gradients(backend, inputs)
    exact = heads_and_gradients(load_backend("eager"), [x.float() for x in inputs])
    return max(float((a.float() - b).abs().max()) for a, b in zip(actual, exact, strict=True))
