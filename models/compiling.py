"""Compile a decoder's blocks with torch.compile; tell what it lacks and when it compiles anew."""

import inspect
import logging
import os
import shutil
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

import torch

from tape_arith.models.decoder import Decoder
from tape_arith.models.errors import UsageError
from tape_arith.models.hardware import Hardware

MOST_GRAPHS = 32
"""Most compiled graphs of a decoder whose blocks share them: the first block, the last and the
others need one each in training and in scoring, and again for new shapes. Past torch's own limit of
8, a function silently runs uncompiled."""

ISOLATES = "isolate_recompiles" in inspect.signature(torch.compile).parameters
"""True if this torch can keep each block's graphs apart, which threads on a CPU need."""

CPU_OPTIONS: dict[str, Any] = {
    "dynamic": True,  # one graph serves the ever new shapes of a batch's groups
    "options": {
        # Runs a graph as one C++ call, so that other threads can run at the same time.
        "cpp_wrapper": True,
        # Generated loops use one thread, so that no bit depends on the number of threads. The
        # default is torch's number at the time of compiling.
        "cpp.threads": 1,
        # Caches traced graphs on disk although blocks leave autocast for a while. This is safe
        # because autocast's arguments are part of the graph and so of the cache key; a default type
        # is not, so code that enters autocast inside a block must name one.
        "unsafe_marked_cacheable_functions": {
            f"torch.amp.autocast_mode.{name}_autocast": "" for name in ("_enter", "_exit")
        },
    },
    # torch moves the graph used last to the front of a list that another thread may be searching;
    # that thread then misses its graph and compiles it again. If each block has a list of its own,
    # it holds a single graph for almost all shapes.
    "isolate_recompiles": True,
}

_resets = 0
"""How often this process has dropped all its compiled graphs."""


class CompiledBlocks:
    """The blocks of a decoder, each compiled on its own, which takes a minute, once.

    calls  the compiled blocks, to be called in place of the decoder's own

    `options` are keyword arguments of torch.compile. The graphs of decoders compiled before are
    dropped, so that they do not count toward the limit.
    """

    def __init__(self, decoder: Decoder, **options: Any) -> None:
        global _resets
        torch.compiler.reset()
        _resets += 1
        raise_graph_limit(blocks=len(decoder.blocks) if options.get("isolate_recompiles") else 1)
        # With dynamic shapes torch treats a module's floats as arguments until an operation needs
        # a number, and then traces everything again.
        torch._dynamo.config.specialize_float = True
        # torch advises TensorFloat32, which would make rescoring in float32 as coarse as before.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        # torch logs operations without an entry in its C interface, which helps no reader.
        logging.getLogger("torch._inductor.ir").addFilter(lambda r: "c-shim" not in r.getMessage())
        self.calls = [torch.compile(block, **options) for block in decoder.blocks]
        self._last_use: object = None

    def may_lack_graphs(self, training: bool, dtype: torch.dtype) -> bool:
        """Record the next use, training or scoring in `dtype`; return whether it may need graphs.

        If so, one thread must go first: threads that miss a graph together would each compile it.
        """
        before, self._last_use = self._last_use, (_resets, training, dtype)
        return self._last_use != before


def check_compiler(hardware: Hardware) -> None:
    """Raise UsageError if blocks are to be compiled on a CPU and that cannot be done."""
    if hardware.device == "cpu" and hardware.compiled and (reason := why_not_compilable()):
        raise UsageError(f"compiling on a CPU {reason}, or do without")


def why_not_compilable() -> str | None:
    """Return what compiling on this CPU lacks, and the remedy; None if it lacks nothing."""
    if not ISOLATES:
        return "needs torch 2.13 or newer: install it"
    if shutil.which(cxx()) is None:
        return f"needs a C++ compiler, and there is no {cxx()}: install one, or name it in CXX"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return f"needs Python's headers, and there is no {header}: install them (python3-dev)"
    return None


def cxx() -> str:
    """Return the name of the C++ compiler that torch calls for CPU code."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


def compiling_failed(error: BaseException) -> bool:
    """Tell whether torch's code generation raised `error`, not the code of a block."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return "torch._dynamo.exc.BackendCompilerFailed" in kinds


def raise_graph_limit(decoders: int = 1, blocks: int = 1) -> None:
    """Allow the graphs of `decoders` at once, each with `blocks` that share no graphs.

    Since torch 2.12 the limit belongs to the current context and its copies, which
    `Hardware.parallel_map` hands to threads. A limit is never lowered.
    """
    config = torch._dynamo.config
    stem = "recompile" if hasattr(config, "recompile_limit") else "cache_size"  # of torch 2.6
    for limit in (f"{stem}_limit", f"accumulated_{stem}_limit"):
        most = MOST_GRAPHS * decoders * blocks
        setattr(config, limit, max(most, getattr(config, limit)))
