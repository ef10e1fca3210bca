"""Compiles for a Hopper GPU (sm_90), on any machine, what would be launched there.

Prints a JSON line for each kernel: registers, bytes of stack (where spilled registers go) and of
shared memory, and the number of Hopper's wide products. A program of its own, since tests run
Triton's interpreter:

    python -m tests.helpers.kernel_compiler bfloat16 3 124

compiles for q, k and v in bfloat16, 64 wide, three values, the longest sequence of 124 tokens.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

from tape_arith.models.kernels import launch

_HEADS, _WIDTH, _TOKENS = 16, 64, 256
_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def launches(dtype: torch.dtype, values: int, longest: int) -> list[tuple[Any, ...]]:
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
    results = launch.forward(q, k, gathered, starts, longest, 0.125)
    given = [torch.empty_like(x) for x in gathered]
    launch.backward(given, q, k, gathered, results, starts, longest, 0.125, values)
    return recorded


def compiled(kernel: Any, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    names = [parameter.name for parameter in kernel.params]
    constants = {name: options[name] for name in names if name in options}
    rest = {name: value for name, value in options.items() if name not in names}
    signature = {name: "constexpr" if name in constants else "" for name in names}
    aligned = {}
    for i, (name, value) in enumerate(zip(names, args, strict=False)):
        signature[name] = mangle_type(value)
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
    # What is spilled lies on the stack.
    registers, stack = (int(re.findall(rf"{name}:(\d+)", report)[0]) for name in ("REG", "STACK"))
    return {
        "kernel": f"{kernel.fn.__module__}.{kernel.fn.__name__}",
        "tile": {name: constants[name] for name in ("S", "R", "C") if name in constants},
        "warps": rest["num_warps"],
        "registers": registers,
        "stack": stack,
        "shared": program.metadata.shared,
        "wgmma": program.asm["ptx"].count("wgmma.mma_async"),
    }


if __name__ == "__main__":
    kind, number, length = sys.argv[1:]
    for recorded in launches(getattr(torch, kind), int(number), int(length)):
        print(json.dumps(compiled(*recorded)), flush=True)
