"""A small decoder with perturbed parameters, and examples of its inputs.

Legend: B batch, T tokens.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tape_arith.arith.registry.load import load_classes
from tape_arith.arith.registry.names import Name
from tape_arith.models.build import build_decoder
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import Setting
from tape_arith.models.sequences import Sequences

VOCABULARY = 19
DIGITS, PLUS, EQUALS, END = tuple(range(4, 14)), 14, 17, 3
TRAINED_LENGTH = 28
SETTING = Setting(
    num_layers=3,
    num_heads=2,
    head_dim=8,
    hidden_size=16,
    trained_length=TRAINED_LENGTH,
    max_length=4 * TRAINED_LENGTH,
    digit_ids=DIGITS,
    separator_ids=(PLUS, EQUALS),
    end_id=END,
    longest_number=37,
    trained_number=9,
    ascending=True,
    unbroken=True,
    coupled="alike",
)
"""The setting of addition of up to 36 digits."""


def decoder_for(
    name: Name | str,
    num_layers: int = 3,
    max_length: int = 4 * TRAINED_LENGTH,
    seed: int = 0,
    **variant: Any,
) -> Decoder:
    """Build a small float64 decoder in evaluation mode, with noise added to every parameter.

    A model is float32, as it may compute in that type, and its noise is small, as that of a network
    without norms grows from step to step.

    variant  norm, loops, input_injection and attention_scale of its config
    """
    sizes = num_layers, SETTING.hidden_size, SETTING.num_heads, SETTING.head_dim
    config = DecoderConfig(VOCABULARY, *sizes, mlp_size=24, **variant)
    setting = replace(
        SETTING,
        num_layers=num_layers,
        max_length=max_length,
        longest_number=max_length // 3,
        loops=config.loops,
    )
    classes = load_classes(name)
    dtype, scale = (torch.float64, 0.3) if classes.model is None else (torch.float32, 0.05)
    decoder = build_decoder(config, classes, setting, seed).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in decoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(scale * noise)
    return decoder


def example_batch(length: int = 20, rows: int = 3) -> Sequences:
    """Make rows of `digits+digits=digits`, each with a key and a final length of its own."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(DIGITS[0], DIGITS[-1] + 1, (rows, length), generator=generator)
    tokens[:, length // 3], tokens[:, 2 * length // 3] = PLUS, EQUALS
    bounds = (length + 3 + 4 * torch.arange(rows)).clamp_max(4 * TRAINED_LENGTH)
    return Sequences(tokens, bounds, torch.arange(rows) + 7, bound=int(bounds.max()))


def packed_batch() -> tuple[Sequences, list[Sequences]]:
    """Pack four sequences end to end, one of them empty; also return each alone."""
    lengths = [20, 1, 0, 13]
    seqs = replace(example_batch(rows=4), final_length=torch.tensor([23, 40, 9, 60]))
    alone = [one_row(seqs, row, seqs.tokens[row, :n]) for row, n in enumerate(lengths)]
    tokens = torch.cat([row.tokens for row in alone], 1)
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return replace(seqs, tokens=tokens, starts=starts, longest=20, bound=60), alone


def one_row(seqs: Sequences, row: int, tokens: Tensor) -> Sequences:
    """Return one row of a batch alone, with these tokens [T]."""
    bound = seqs.final_length[row : row + 1]
    return Sequences(tokens[None], bound, seqs.key[row : row + 1], bound=int(bound))


def forward(decoder: Decoder, seqs: Sequences) -> Tensor:
    with torch.no_grad():
        return decoder(seqs)


def both_modes(name: Name | str) -> Iterator[tuple[Decoder, str]]:
    """Yield a decoder as it is scored, then as it is trained, with what to add to a message."""
    decoder = decoder_for(name)
    yield decoder, ""
    yield decoder.train(), ", in training"
