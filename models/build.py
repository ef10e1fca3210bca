"""Build an encoding from its name, and a decoder around it."""

from typing import Any

import torch

from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import (
    Combination,
    Extrapolation,
    PositionalEncoding,
    Setting,
    defines_attention,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.names.locate import locate
from tape_arith.models.names.parse import Name, NamePart, parse


def build(name: Name | str, setting: Setting) -> PositionalEncoding:
    """Build a freshly initialized encoding.

    Raises UsageError for an unknown name or option, parts that cannot be joined, or an
    extrapolation of an encoding that has nothing it could change.
    """
    name = parse(name) if isinstance(name, str) else name
    classes = {part: _class(part, "encoding", PositionalEncoding) for part in name.encoding.parts}
    parts: dict[str, PositionalEncoding] = {
        part.name: classes[part](setting, **dict(part.options))
        # What attends draws its weights last.
        for part in sorted(classes, key=lambda part: defines_attention(classes[part]))
    }
    encoding = Combination(parts) if len(parts) > 1 else next(iter(parts.values()))
    if name.extrapolation is not None:
        extrapolate(encoding, name.extrapolation)
    return encoding


def extrapolate(encoding: PositionalEncoding, part: NamePart) -> None:
    """Apply an extrapolation to `encoding`. Raises UsageError if it has nothing to change."""
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
    """Build a decoder without memory for its weights, to ask for its needs and shapes.

    With `real_encoding` the encoding gets memory, for code that reads numbers off its tensors.
    Raises UsageError as `build`.
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
    return cls
