"""Build an encoding or a decoder from classes."""

from functools import partial

import torch

from tape_arith.models.classes import Classes
from tape_arith.models.combination import Combination, defines_attention
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations.extrapolation import Extrapolation
from tape_arith.models.other_model import OtherModel


def build(classes: Classes, setting: Setting) -> PositionalEncoding:
    """Build a freshly initialized encoding.

    Raises UsageError for an option out of range, parts that cannot be joined, or an extrapolation
    that finds nothing to change in the encoding.
    """
    # The part that defines attention draws its weights last.
    order = sorted(classes.parts, key=lambda name: defines_attention(classes.parts[name].func))
    parts = {name: classes.parts[name](setting) for name in order}
    encoding = Combination(parts) if len(parts) > 1 else next(iter(parts.values()))
    if classes.extrapolation is not None:
        extrapolate(encoding, classes.extrapolation)
    return encoding


def extrapolate(encoding: PositionalEncoding, make: partial[Extrapolation]) -> None:
    """Apply an extrapolation to `encoding`. Raises UsageError if nothing there can change."""
    extrapolation = make()
    if isinstance(encoding, Combination):
        encoding = encoding.attending
    reason = extrapolation.why_unsupported(encoding)
    if reason is not None:
        raise UsageError(f"'{extrapolation.name}' {reason}")
    extrapolation.apply(encoding)


def build_decoder(config: DecoderConfig, classes: Classes, setting: Setting, seed: int) -> Decoder:
    """Build a decoder whose own weights depend on `seed` alone, whatever the encoding draws.

    A model in its place has the weights that its constructor draws after `torch.manual_seed`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if classes.model is not None:
            return OtherModel(config, classes.model, setting)
        decoder = Decoder(config, build(classes, setting))
    decoder.initialize(torch.Generator().manual_seed(seed))
    return decoder


def meta_decoder(
    config: DecoderConfig, classes: Classes, setting: Setting, *, real_encoding: bool = False
) -> Decoder:
    """Build a decoder without memory for its weights, to read its needs and shapes.

    With `real_encoding` the encoding does get memory, for code that reads its tensors' values.
    Raises UsageError as `build` does.
    """
    if classes.model is not None:  # its constructor may read the values of its weights
        return build_decoder(config, classes, setting, seed=0).to("meta")
    with torch.device("meta"):
        if not real_encoding:
            return build_decoder(config, classes, setting, seed=0)
        decoder = Decoder(config, PositionalEncoding(setting))
    with torch.random.fork_rng(devices=[]):
        decoder.pe = build(classes, setting)
    return decoder
