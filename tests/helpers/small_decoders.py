"""Settings and inputs of decoders small enough for loops, and the error of their results.

Shapes: B batch, T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tape_arith.arith.registry.load import load_classes
from tape_arith.models import build as models_build
from tape_arith.models.decoder import DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting, Workload
from tape_arith.models.sequences import Sequences

NUMBERINGS = ("even", "plain", "redraw")
"""The extrapolations that change randomized positions; the others change frequencies."""
VOCABULARY = 19
SETTING = Setting(
    num_layers=2,
    num_heads=2,
    head_dim=8,
    hidden_size=24,
    trained_length=28,
    max_length=52,
    digit_ids=tuple(range(4, 14)),
    separator_ids=(14, 17),
    end_id=3,
    longest_number=17,
    trained_number=9,
    ascending=True,
    unbroken=True,
    coupled="alike",
)


_classes = cache(load_classes)  # finding a file takes as long as building


def build(name: str, setting: Setting) -> PositionalEncoding:
    """Build the encoding of a built-in name, with new weights."""
    return models_build.build(_classes(name), setting)


def setting(**changes: Any) -> Setting:
    return replace(SETTING, **changes)


def setting_of(config: DecoderConfig, **changes: Any) -> Setting:
    """Build a setting for the encoding of a decoder of these sizes."""
    return setting(
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        loops=config.loops,
        **changes,
    )


def sequences(final_lengths: Sequence[int], length: int = 12, offset: int = 0) -> Sequences:
    """Make rows of the same tokens, so that positions alone tell them apart."""
    rows = len(final_lengths)
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(3, VOCABULARY, (1, length), generator=generator).expand(rows, -1)
    return Sequences(
        tokens, torch.tensor(final_lengths), torch.zeros(rows, dtype=torch.int64), offset
    )


def error(actual: Tensor, expected: Tensor, least: float = 1e-300) -> float:
    """Return the largest difference relative to the largest of `expected`, at least `least`."""
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=least))


_SIGNS = {"+": 14, "=": 17, "$": 3, " ": 0} | {str(digit): 4 + digit for digit in range(10)}


def digits(*texts: str) -> Sequences:
    """Encode problems, right-padded with spaces; each row has another key."""
    width = max(map(len, texts))
    tokens = torch.tensor([[_SIGNS[c] for c in text.ljust(width)] for text in texts])
    return Sequences(tokens, torch.full((len(texts),), width + 3), torch.arange(len(texts)) + 7)


def packed_digits(*texts: str) -> Sequences:
    """Encode problems end to end."""
    apart, lengths = digits(*texts), [len(text) for text in texts]
    tokens = torch.tensor([[_SIGNS[c] for c in "".join(texts)]])
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return replace(apart, tokens=tokens, starts=starts, longest=max(lengths))


def counted(function: Callable[[], object]) -> int:
    """Return the FLOPs of a call by torch's counter, which sees only torch's own products."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def padded_workload(rows: int, tokens: int) -> Workload:
    """Return what plain attention computes: the full square of each row, future included."""
    return Workload(rows * tokens, rows * tokens**2, tokens**2)
