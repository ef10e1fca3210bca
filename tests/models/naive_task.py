"""Oracles of what is added to token embeddings: by a token's place in its sequence, and by its
place in its number (task-structured encodings); as loops from the papers' formulas (see naive.py).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.models.naive import NoPE, RoPE, Shape, Weights

# ---- which number each token gets --------------------------------------------------------------


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


# ---- encodings ---------------------------------------------------------------------------------


class Sinusoidal(NoPE):
    """x sqrt(D) + [sin(t w_0) .. sin(t w_{D/2-1}), cos(t w_0) .. cos(t w_{D/2-1})], w_k =
    10000^(-2k/D) (Vaswani et al. 2017, arXiv 1706.03762, section 3.4 and 3.5)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], factor: float | None = None
    ) -> None:
        super().__init__(weights, shape, index)
        self.factor = factor

    def embed(self, t: int, x: Tensor) -> Tensor:
        width = x.shape[0]
        waves = [10_000.0 ** (-2.0 * k / width) for k in range(width // 2)]
        sines = [math.sin(self.index[t] * w) for w in waves]
        cosines = [math.cos(self.index[t] * w) for w in waves]
        factor = math.sqrt(width) if self.factor is None else self.factor
        return factor * x + torch.tensor(sines + cosines, dtype=x.dtype)


class Table(NoPE):
    """x + table[index]: learned positions (Gehring et al. 2017, arXiv 1705.03122), and those of
    Abacus and Position Coupling, which differ in the index alone."""

    def __init__(self, weights: Weights, shape: Shape, index: Sequence[int], table: Tensor) -> None:
        super().__init__(weights, shape, index)
        self.table = table

    def embed(self, t: int, x: Tensor) -> Tensor:
        return x + self.table[self.index[t]]


class BiPE(RoPE):
    """x + table[place in the segment], and RoPE by the segment's number (arXiv 2401.16421)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        pairs: Sequence[tuple[int, int]],
        table: Tensor,
        thetas: Sequence[float] | None = None,
    ) -> None:
        super().__init__(weights, shape, [segment for segment, _ in pairs], thetas)
        self.places = [place for _, place in pairs]
        self.table = table

    def embed(self, t: int, x: Tensor) -> Tensor:
        return x + self.table[min(self.places[t], self.table.shape[0] - 1)]


class Joined(NoPE):
    """The embedding of one encoding and the attention of another."""

    def __init__(self, embedding: NoPE, attention: NoPE) -> None:
        super().__init__(attention.weights, attention.shape, attention.index)
        self.embedding, self.attention = embedding, attention

    def embed(self, t: int, x: Tensor) -> Tensor:
        return self.attention.embed(t, self.embedding.embed(t, x))

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        self.attention.before_attention(layer, normed, q, k)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        return self.attention.score(layer, head, t, i, q, k)

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        return self.attention.weigh(layer, head, t, scores)
