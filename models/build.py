"""From a name to an encoding, and to a decoder that holds it."""

import inspect
import logging
import os
import shutil
import sys
import warnings
from typing import Any

import torch

from models import catalog, graphs, source
from models.backends import choose
from models.catalog import Name, Part
from models.combination import Combination
from models.decoder import Decoder, DecoderConfig
from models.encoding import PositionalEncoding, Setting
from models.errors import UsageError
from models.extrapolation import Extrapolation
from models.hardware import Hardware

ISOLATES = "isolate_recompiles" in inspect.signature(torch.compile).parameters
"""Whether this torch can keep the graphs of each block apart."""

# The groups of a batch have ever new shapes, which one graph shall serve.
ON_A_CPU: dict[str, Any] = {"dynamic": True}
if ISOLATES:
    ON_A_CPU |= {
        "options": {
            # A graph in one call of C++, which lets other threads run beside it.
            "cpp_wrapper": True,
            # What is traced can be kept on disk where autocast is left for a while too: what that
            # is told stands in the graph, and so in the key (a type that it is not told does not:
            # who enters autocast inside a block is to name one).
            "unsafe_marked_cacheable_functions": {
                f"torch.amp.autocast_mode.{name}_autocast": "" for name in ("_enter", "_exit")
            },
        },
        # torch moves the graph that was wanted last to the front of a list, in which another thread
        # may be looking for its own just then: it misses it, and compiles it again. A block's own
        # list has a single graph for almost all shapes.
        "isolate_recompiles": True,
    }


def build(name: Name | str, setting: Setting) -> PositionalEncoding:
    """The encoding that `name` stands for, freshly initialized.

    Errors: UsageError for a name or option that is not there, encodings that cannot be joined, or
    an extrapolation of an encoding that has nothing it could change.
    """
    name = catalog.parse(name) if isinstance(name, str) else name
    parts: dict[str, PositionalEncoding] = {
        part.name: _class(part, "encoding", PositionalEncoding)(setting, **dict(part.options))
        for part in name.encoding.parts
    }
    encoding = Combination(parts) if len(parts) > 1 else next(iter(parts.values()))
    if name.extrapolation is not None:
        extrapolate(encoding, name.extrapolation)
    return encoding


def extrapolate(encoding: PositionalEncoding, part: Part) -> None:
    """Give `encoding` the extrapolation that `part` names, for evaluation."""
    extrapolation = _class(part, "extrapolation", Extrapolation)(**dict(part.options))
    if isinstance(encoding, Combination):
        encoding = encoding.attending
    reason = extrapolation.lacks(encoding)
    if reason is not None:
        raise UsageError(f"'{part.name}' {reason}")
    extrapolation.give(encoding)


def build_decoder(config: DecoderConfig, name: Name | str, setting: Setting, seed: int) -> Decoder:
    """A decoder whose own weights depend on `seed` alone, whatever the encoding draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = Decoder(config, build(name, setting))
    decoder.initialize(torch.Generator().manual_seed(seed))
    return decoder


def prepare(decoder: Decoder, hardware: Hardware) -> Decoder:
    """`decoder` on `hardware`, its attention computed by the backend that is asked for there, its
    blocks compiled where they are to be, and run as they are where not.

    Errors: UsageError where that backend cannot do what the encoding needs, or blocks cannot be
    compiled.
    """
    check_compiler(hardware)
    decoder.attend_with(choose(hardware.attention, decoder.needs, hardware))
    if hardware.compiles and not decoder.wrapped:
        compile_blocks(decoder, **(ON_A_CPU if hardware.device == "cpu" else {}))
    decoder.compiled = hardware.compiles
    return decoder.to(hardware.device)


def turns_to(decoder: Decoder, dtype: torch.dtype) -> bool:
    """Take note of what comes now, training or scoring in `dtype`: whether graphs of compiled
    blocks may be missing for it, since it is not what came last. Threads that miss one at the same
    time would compile it once each."""
    use = (graphs.forgotten, decoder.training, dtype) if decoder.compiled else None
    before, decoder.last_use = decoder.last_use, use
    return use != before


def check_compiler(hardware: Hardware) -> None:
    """Errors: UsageError where blocks are to be compiled and, as far as that is known beforehand,
    cannot be."""
    if hardware.device != "cpu" or not hardware.compiles:
        return
    if hardware.threads > 1 and not ISOLATES:
        raise UsageError(
            "--compile takes one thread of a CPU with this torch: add --threads 1 (--slots shares "
            "the cores out to runs), or install torch 2.13 or newer"
        )
    if shutil.which(cxx()) is None:
        raise UsageError(
            f"--compile needs a C++ compiler, and there is no {cxx()}: install one, or name it in "
            "CXX"
        )


def cxx() -> str:
    """The C++ compiler that torch calls for code of a CPU."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


def compiling_failed(error: BaseException) -> bool:
    """Whether `error` comes of generating code for blocks, not of the code that they hold."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return "torch._dynamo.exc.BackendCompilerFailed" in kinds


def compile_blocks(decoder: Decoder, **how: Any) -> None:
    """Compile each block on its own, which takes a minute once; changes no name of a parameter.
    `how`: keyword arguments of torch.compile.

    Decoders compiled before are forgotten, so that their graphs do not count.
    """
    graphs.forget_graphs()
    graphs.allow_graphs(blocks=len(decoder.blocks) if how.get("isolate_recompiles") else 1)
    graphs.fix_numbers()
    # Its advice would make what is scored again in float32 as coarse as the first time.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    logging.getLogger("torch._inductor.ir").addFilter(_not_of_shims)
    for block in decoder.blocks:
        block.compile(**how)
    decoder.wrapped = decoder.compiled = True


def _not_of_shims(record: logging.LogRecord) -> bool:
    """Everything but that an operation has no entry of its own in torch's C interface."""
    return "c-shim" not in record.getMessage()


def _class(part: Part, kind: str, base: type) -> Any:
    """The class that `part` names; from here on code runs that may be somebody else's.

    Errors: UsageError where it cannot be imported, or is no subclass of `base`.
    """
    place = catalog.place(kind, part.name)
    found = getattr(place.load(), source.read(place).class_name, None)
    if not isinstance(found, type) or not issubclass(found, base):
        raise UsageError(f"{place} is no {kind}: it must be a subclass of {base.__name__}")
    return found
