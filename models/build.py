"""Build an encoding from its name, and a decoder around it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.backends import choose
from tape_arith.models.compile import CPU_OPTIONS, check_compiler, compile_blocks
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import (
    Combination,
    Extrapolation,
    PositionalEncoding,
    Setting,
    defines_attention,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.hardware import Hardware
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


@dataclass(frozen=True)
class Blueprint:
    """A decoder without memory for its weights: what it needs, and how large it would be."""

    decoder: Decoder

    @classmethod
    def of(
        cls, sizes: DecoderConfig, name: Name, setting: Setting, *, real_encoding: bool = False
    ) -> "Blueprint":
        """Build on the meta device. Raises UsageError as `build`.

        real_encoding  give the encoding memory, for code that reads numbers off its tensors
        """
        with torch.device("meta"):
            if not real_encoding:
                return cls(build_decoder(sizes, name, setting, seed=0))
            decoder = Decoder(sizes, PositionalEncoding(setting))
        with torch.random.fork_rng(devices=[]):
            decoder.pe = build(name, setting)
        return cls(decoder)

    @property
    def pe(self) -> PositionalEncoding:
        return self.decoder.pe

    @property
    def needs(self) -> Needs:
        """Requirements on the attention backend."""
        return self.decoder.needs

    @cached_property
    def shapes(self) -> dict[str, str]:
        """Type and shape of each weight by name, as in "float32 [19, 256]"."""
        return {name: describe(tensor) for name, tensor in self.decoder.state_dict().items()}

    @cached_property
    def num_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.decoder.state_dict().values())

    @cached_property
    def num_parameters(self) -> int:
        return self.decoder.num_parameters()


def describe(tensor: Tensor) -> str:
    """Describe type and shape of a tensor.

    >>> describe(torch.zeros(2, 3))
    'float32 [2, 3]'
    """
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def prepare(decoder: Decoder, hardware: Hardware) -> Decoder:
    """Move `decoder` to `hardware`, choose its attention backend and compile its blocks if asked.

    Raises UsageError if the backend cannot do what the encoding needs, or blocks cannot be
    compiled.
    """
    check_compiler(hardware)
    decoder.attend_with(choose(hardware.attention, decoder.needs, hardware))
    if hardware.compiles and not decoder.wrapped:
        compile_blocks(decoder, **(CPU_OPTIONS if hardware.device == "cpu" else {}))
    decoder.compiled = hardware.compiles
    return decoder.to(hardware.device)


def _class(part: NamePart, kind: str, base: type) -> Any:
    """Import the class that `part` names, which may run a user's code.

    Raises UsageError if it cannot be imported or is no subclass of `base`.
    """
    location = locate(kind, part.name)
    cls = getattr(location.load(), location.declaration().class_name, None)
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise UsageError(f"{location} is no {kind}: it must be a subclass of {base.__name__}")
    return cls
