"""Oracles of what is added to token embeddings: by a token's place in its sequence, and by its
place in its number (task-structured encodings); loops from the papers' formulas (see decoder.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.helpers.oracles.decoder import NoPE
from tests.helpers.oracles.rotary import RoPE


def abacus_indices(tokens: Sequence[int], digits: Sequence[int], start: int) -> list[int]:
    """0 for what is no digit; the digits of a run get start + 1, start + 2, ... from its first, the
    least significant one where numbers are reversed (arXiv 2405.17399)."""
    indices = []
    for t, token in enumerate(tokens):
        if token not in digits:
            indices.append(0)
        elif t > 0 and tokens[t - 1] in digits:
            indices.append(indices[-1] + 1)
        else:
            indices.append(start + 1)
    return indices


def coupling_indices(
    tokens: Sequence[int], digits: Sequence[int], separators: Sequence[int], s: int
) -> list[int]:
    """A digit of place r (0: the least significant, which stands first) gets s + 1 + r, in operands
    and answer alike; a separator s; any other token 0 (arXiv 2405.20671, without zero-padding)."""
    indices = []
    place = 0
    for token in tokens:
        if token in digits:
            indices.append(s + 1 + place)
            place = place + 1
        else:
            indices.append(s if token in separators else 0)
            place = 0
    return indices


def bipe_indices(tokens: Sequence[int], separators: Sequence[int]) -> list[tuple[int, int]]:
    """(segment, place in it), both from 0; a separator is the last token of the segment that it
    closes (arXiv 2401.16421)."""
    pairs = []
    segment, place = 0, 0
    for token in tokens:
        pairs.append((segment, place))
        place = place + 1
        if token in separators:
            segment, place = segment + 1, 0
    return pairs


class Sinusoidal(NoPE):
    """x sqrt(D) + [sin(t w_0) .. sin(t w_{D/2-1}), cos(t w_0) .. cos(t w_{D/2-1})], w_k =
    10000^(-2k/D) (Vaswani et al. 2017, arXiv 1706.03762, section 3.4 and 3.5)."""

    def embed(self, t: int, x: Tensor) -> Tensor:
        width = x.shape[0]
        waves = [10_000.0 ** (-2.0 * k / width) for k in range(width // 2)]
        sines = [math.sin(self.index[t] * w) for w in waves]
        cosines = [math.cos(self.index[t] * w) for w in waves]
        return math.sqrt(width) * x + torch.tensor(sines + cosines, dtype=x.dtype)


@dataclass
class Table(NoPE):
    """x + table[index]: learned positions (Gehring et al. 2017, arXiv 1705.03122), and those of
    Abacus and Position Coupling, which differ in the index alone."""

    table: Tensor

    def embed(self, t: int, x: Tensor) -> Tensor:
        return x + self.table[self.index[t]]


@dataclass
class BiPE(RoPE):
    """x + table[place in the segment], and RoPE by the segment's number (arXiv 2401.16421)."""

    places: Sequence[int] = ()

    def embed(self, t: int, x: Tensor) -> Tensor:
        table = self.weights["pe.table"]
        return x + table[min(self.places[t], table.shape[0] - 1)]


@dataclass
class Joined(NoPE):
    """The embedding of one encoding and the scores of another."""

    embedding: NoPE
    attention: NoPE

    def embed(self, t: int, x: Tensor) -> Tensor:
        return self.embedding.embed(t, x)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        return self.attention.score(layer, head, t, i, q, k)
