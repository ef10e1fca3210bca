"""Build a decoder from the name of its encoding, and prepare it for its hardware."""

from typing import Any

import torch

from tape_arith.models.attention import Backend, Eager, Needs
from tape_arith.models.backends import SDPA, FlashAttn, Fused
from tape_arith.models.compiling import CPU_OPTIONS, check_compiler, compile_blocks
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import (
    Combination,
    PositionalEncoding,
    Setting,
    defines_attention,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations import Extrapolation
from tape_arith.models.hardware import Hardware
from tape_arith.models.locate import locate
from tape_arith.models.modifiers import modify
from tape_arith.models.names import BACKENDS, Name, NamePart, known_backend, parse

_BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend for backend in (Eager, FlashAttn, Fused, SDPA)
}
# `auto` takes the first backend that meets the needs. On a CPU plain products are the fastest at
# these lengths.
_PREFERENCE = {"cpu": ("eager",), "cuda": ("fused", "flash-attn", "sdpa", "eager")}


def build(name: Name | str, setting: Setting) -> PositionalEncoding:
    """Build a freshly initialized encoding.

    Raises UsageError for an unknown name or option, parts that cannot be joined, or an
    extrapolation that finds nothing to change in the encoding.
    """
    name = parse(name) if isinstance(name, str) else name
    classes = {part: _class(part, "encoding", PositionalEncoding) for part in name.encoding.parts}
    parts: dict[str, PositionalEncoding] = {
        part.name: classes[part](setting, **dict(part.options))
        # The part that defines attention draws its weights last.
        for part in sorted(classes, key=lambda part: defines_attention(classes[part]))
    }
    encoding = Combination(parts) if len(parts) > 1 else next(iter(parts.values()))
    if name.extrapolation is not None:
        extrapolate(encoding, name.extrapolation)
    return encoding


def extrapolate(encoding: PositionalEncoding, part: NamePart) -> None:
    """Apply an extrapolation to `encoding`. Raises UsageError if nothing there can change."""
    extrapolation = _class(part, "extrapolation", Extrapolation)(**dict(part.options))
    if isinstance(encoding, Combination):
        encoding = encoding.attending
    reason = extrapolation.why_unsupported(encoding)
    if reason is not None:
        raise UsageError(f"'{part.name}' {reason}")
    extrapolation.apply(encoding)


def build_decoder(config: DecoderConfig, name: Name | str, setting: Setting, seed: int) -> Decoder:
    """Build a decoder whose own weights depend on `seed` alone, whatever the encoding draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = Decoder(config, build(name, setting))
    decoder.initialize(torch.Generator().manual_seed(seed))
    return decoder


def meta_decoder(
    config: DecoderConfig, name: Name, setting: Setting, *, real_encoding: bool = False
) -> Decoder:
    """Build a decoder without memory for its weights, to read its needs and shapes.

    With `real_encoding` the encoding does get memory, for code that reads its tensors' values.
    Raises UsageError as `build` does.
    """
    with torch.device("meta"):
        if not real_encoding:
            return build_decoder(config, name, setting, seed=0)
        decoder = Decoder(config, PositionalEncoding(setting))
    with torch.random.fork_rng(devices=[]):
        decoder.pe = build(name, setting)
    return decoder


def _class(part: NamePart, kind: str, base: type) -> Any:
    """Import the class that `part` names, which may run a user's code.

    Raises UsageError if it cannot be imported or is no subclass of `base`.
    """
    location = locate(kind, part.name)
    cls = getattr(location.load(), location.declaration().class_name, None)
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise UsageError(f"{location} is no {kind}: it must be a subclass of {base.__name__}")
    if location.modifier is None:
        return cls
    return modify(_class(NamePart(location.modifier.name), "modifier", base), cls)


def load_backend(name: str) -> Backend:
    """Build the backend `name`. Raises UsageError for an unknown name."""
    return _BACKENDS[known_backend(name)]()


def choose_backend(request: str, needs: Needs, hardware: Hardware) -> Backend:
    """Choose the backend for an encoding.

    Raises UsageError that names the alternatives if the requested backend does not meet `needs`; it
    never falls back silently.
    """
    names = _PREFERENCE[hardware.device] if request == "auto" else [request]
    for backend in map(load_backend, names):
        reason = backend.why_unsupported(needs, hardware)
        if reason is None:
            return backend
    able = [name for name in BACKENDS if not load_backend(name).why_unsupported(needs, hardware)]
    raise UsageError(
        f"attention backend '{request}' {reason}; what can do it here: {', '.join(['auto', *able])}"
    )


def prepare(decoder: Decoder, hardware: Hardware) -> Decoder:
    """Move `decoder` to `hardware`, choose its attention backend and compile its blocks if asked.

    Raises UsageError if the backend cannot do what the encoding needs, or blocks cannot be
    compiled.
    """
    check_compiler(hardware)
    decoder.attend_with(choose_backend(hardware.attention, decoder.needs, hardware))
    if hardware.compiles and not decoder.wrapped:
        compile_blocks(decoder, **(CPU_OPTIONS if hardware.device == "cpu" else {}))
    decoder.compiled = hardware.compiles
    return decoder.to(hardware.device)
