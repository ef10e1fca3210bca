"""Decoders whose attention varies and a few problems, in float64 so that rounding decides nothing.

Legend: T tokens, H heads, N layers.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.tasks.task import Problems
from tape_arith.models.decoder import Decoder
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences
from tests.helpers.small_training import perturbed, small

CONFIG = small(trained_digits=3, tested_digits=6, num_layers=3)
BUCKET = Bucket("addition", 6, 0, "evaluation")
COUNT = 24
PROBLEMS, KEYS = BUCKET.problems(0, COUNT), BUCKET.keys(0, COUNT)
ALL = np.arange(COUNT)


def varied(name: str) -> Decoder:
    """A decoder in float64 with every parameter moved off its start."""
    return perturbed(decoder_for(CONFIG, parse(name), 0).double().eval(), 0.4)


def rows_of(problems: Problems) -> list[list[int]]:
    """The tokens of each problem but its end token, as plain numbers."""
    ends = np.cumsum(problems.lengths)
    return [
        problems.tokens[end - length : end - 1].tolist()
        for end, length in zip(ends, problems.lengths, strict=True)
    ]


@torch.no_grad()
def one_by_one(
    decoder: Decoder, tokens: list[int], final_length: int, key: int, offset: int = 0
) -> tuple[list[NDArray[np.float64]], list[Any]]:
    """A forward of one problem alone: of each layer the weights [H, T, T] and the state."""
    weights: list[NDArray[np.float64]] = []
    states: list[Any] = []

    def watch(layer: int, what: str, value: Any) -> None:
        if what == "weights":
            weights.append(value[0].numpy())
        else:
            states.append(value)

    one = torch.tensor([tokens]), torch.tensor([final_length]), torch.tensor([key])
    decoder(Sequences(*one, offset=offset, watch=watch))
    return weights, states


def entries(state: Any) -> list[Tensor]:
    """e of a state of rope or tape: each token's numbers of every head, [T, H, 4F]."""
    return list(torch.cat(tuple(state), -1)[0])
