"""Compile for a Hopper GPU (sm_90), on any machine, what would be launched there.

Run as a program, since tests run Triton's interpreter, it prints a JSON line for each kernel:
registers, bytes of stack (where spilled registers go) and of shared memory, and the number of wide
products:

    python -m tests.models.kernels.test_compiling bfloat16 3 124 none

compiles for q, k and v in bfloat16, 64 wide, three values, the longest sequence of 124 tokens, and
no bias (or a "fixed" or "learned" one).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

from tape_arith.models.kernels.multi_value import attend, attend_backward

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SHARED = 99 * 1024  # bytes that a program may have on the GPUs of capability 8.6 and 8.9
_HEADS, _WIDTH, _TOKENS = 16, 64, 256
_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


@pytest.mark.parametrize("longest", [64, 124, 244])
@pytest.mark.parametrize(("values", "bias"), [(1, "none"), (3, "none"), (1, "learned")])
def test_for_hopper(values: int, longest: int, bias: str, tmp_path: Path) -> None:
    """No register is spilled, tiles of 64 use its wide products, and smaller GPUs have room."""
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    program = [sys.executable, "-m", "tests.models.kernels.test_compiling"]
    done = subprocess.run(
        [*program, "bfloat16", str(values), str(longest), bias],
        cwd=ROOT,
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(compiled) == {64: 2, 124: 4, 244: 3}[longest] + (bias == "learned")
    for kernel in compiled:
        assert kernel["stack"] == 0 and kernel["wgmma"] > 0, kernel
        assert kernel["shared"] <= SHARED, kernel


def launches(dtype: torch.dtype, values: int, longest: int, bias: str) -> list[tuple[Any, ...]]:
    """Return kernel, arguments and options of each launch of a forward and a backward."""
    recorded: list[tuple[Any, ...]] = []

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        recorded.append((kernel, args, options))

    JITFunction.run = record
    fused = torch.zeros(_TOKENS, 3, _HEADS, _WIDTH, dtype=dtype)
    q, k, v = fused.unbind(1)
    state = torch.zeros(_TOKENS, _HEADS, values - 1, _WIDTH)
    gathered: list[Tensor] = [v, *state.unbind(-2)]
    starts = torch.tensor([0, _TOKENS], dtype=torch.int32)
    square = (
        None
        if bias == "none"
        else torch.zeros(_HEADS, -(-longest // 16) * 16, -(-longest // 16) * 16)
    )
    results = attend(q, k, gathered, starts, longest, 0.125, square)
    upstream = [torch.empty_like(x) for x in gathered]
    options = (square, values, bias == "learned")
    attend_backward(upstream, q, k, gathered, results, starts, longest, 0.125, *options)
    return recorded


def compiled(kernel: Any, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    names = [parameter.name for parameter in kernel.params]
    constants = {name: options[name] for name in names if name in options}
    constants |= {name: None for name, value in zip(names, args, strict=False) if value is None}
    rest = {name: value for name, value in options.items() if name not in names}
    signature = {name: "constexpr" if name in constants else "" for name in names}
    aligned = {}
    for i, (name, value) in enumerate(zip(names, args, strict=False)):
        signature[name] = mangle_type(value)  # "constexpr" for None
        counted = isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)
        if counted and name not in ("n", "blocks", "tokens"):
            aligned[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, aligned)
    program = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=rest)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(program.asm["cubin"])
        file.flush()
        command = [str(_CUOBJDUMP), "--dump-resource-usage", file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {
        "kernel": f"{kernel.fn.__module__}.{kernel.fn.__name__}",
        "tile": {name: constants[name] for name in ("S", "R", "C") if name in constants},
        "registers": int(re.findall(r"REG:(\d+)", report)[0]),
        "stack": int(re.findall(r"STACK:(\d+)", report)[0]),
        "shared": program.metadata.shared,
        "wgmma": program.asm["ptx"].count("wgmma.mma_async"),
    }


if __name__ == "__main__":
    kind, number, length, added = sys.argv[1:]
    for recorded in launches(getattr(torch, kind), int(number), int(length), added):
        print(json.dumps(compiled(*recorded)), flush=True)
