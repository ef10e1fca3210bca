"""What a decoder attends to: the weights of every layer, and the inner products of its positions.

Legend: B batch, T tokens, H heads, N layers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.errors import Failure
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences

Integers = NDArray[np.int64]

# Of all weights of a batch: two sets of them take 320 MB in float64.
NUMBERS_A_BATCH = 20_000_000


@dataclass(frozen=True)
class Watched:
    """Of each layer the weights [B, H, T, T] that values were gathered with, and the inner
    products [B or 1, H or 1, T, T] of the positional state that it used, None where there is no
    such state."""

    weights: list[Tensor]
    products: list[Tensor | None]


def watched(decoder: Decoder, seqs: Sequences) -> Watched:
    """A forward of padded rows, watched; in the type of the decoder's parameters.

    Errors: UsageError where the backend of attention never shows its weights (`eager` does), and
    the encoding's own; Failure where weights are not finite.
    """
    seen = Watched([], [])

    def watch(layer: int, what: str, value: Any) -> None:
        if what == "state":
            seen.products.append(decoder.pe.inner_products(value))
        if what == "weights":
            if not bool(value.isfinite().all()):
                raise Failure(f"attention weights of layer {layer + 1} are not finite")
            seen.weights.append(value)

    with torch.no_grad():
        decoder(replace(seqs, watch=watch, weights_too=True))
    assert len(seen.weights) == len(seen.products) == decoder.config.num_layers
    return seen


def batches(
    decoder: Decoder, problems: Problems, keys: Integers, among: Integers
) -> Iterator[Rows]:
    """The problems at the places `among` in batches of one length each, so that nothing is padded;
    few enough for all weights of all layers to be in memory."""
    maps = decoder.config.num_layers * decoder.config.num_heads
    lengths = problems.lengths[among]
    for length in np.unique(lengths):
        same = among[lengths == length]
        most = max(1, NUMBERS_A_BATCH // (maps * int(length) ** 2))
        for start in range(0, len(same), most):
            yield pad(problems, keys, same[start : start + most])
