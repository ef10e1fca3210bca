"""Oracles of the relative biases, as loops from their papers' formulas (see naive.py).

Each is given the numbers it needs as plain arguments: which of the decoder's parameters they are is
said where the loops are compared. `distance` is the index of the query minus that of the key.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.models.naive import FIRE, NoPE, Shape, Weights

# ---- slopes ------------------------------------------------------------------------------------


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8h/H), h = 1 .. H. Where H is no power of two: the slopes of the largest power of two P
    below it, then every other slope (the first, the third, ...) of 2P heads (arXiv 2108.12409)."""
    power = 1
    while 2 * power <= num_heads:
        power = 2 * power
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    h = 1
    while len(slopes) < num_heads:
        slopes.append(2.0 ** (-8.0 * h / (2 * power)))
        h = h + 2
    return slopes


# ---- biases ------------------------------------------------------------------------------------


class Bias(NoPE):
    """q.k / sqrt(K) and then, unscaled, a bias of each layer, head, query and key."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor | float:
        raise NotImplementedError

    def distance(self, t: int, i: int) -> int:
        return self.index[t] - self.index[i]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        return super().score(layer, head, t, i, q, k) + self.bias(layer, head, t, i)


class ALiBi(Bias):
    """b = -m_h distance, m_h fixed (arXiv 2108.12409)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], slopes: Sequence[float]
    ) -> None:
        super().__init__(weights, shape, index)
        self.slopes = list(slopes)

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        return -self.slopes[head] * self.distance(t, i)


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Which of `buckets` a distance >= 0 falls into, where no query sees a later key: half of them
    hold one distance each, half are logarithmic up to `max_distance`, the last holds what lies
    beyond (arXiv 1910.10683)."""
    exact = buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return min(exact + math.floor(share * (buckets - exact)), buckets - 1)


class T5(Bias):
    """b = r_h[bucket(distance)]; one table [buckets, H] for all layers (arXiv 1910.10683)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        table: Tensor,
        max_distance: int,
    ) -> None:
        super().__init__(weights, shape, index)
        self.table = table
        self.max_distance = max_distance

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        bucket = t5_bucket(self.distance(t, i), self.table.shape[0], self.max_distance)
        return self.table[bucket, head]


class KerpleLog(Bias):
    """b = -p_h ln(1 + a_h distance), p, a [H] > 0 (arXiv 2205.09921)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], p: Tensor, a: Tensor
    ) -> None:
        super().__init__(weights, shape, index)
        self.p, self.a = p, a

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        return -self.p[head] * torch.log(1.0 + self.a[head] * self.distance(t, i))


class KerplePower(Bias):
    """b = -a_h distance^p_h, a > 0, 0 < p <= 2 [H] (arXiv 2205.09921)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], p: Tensor, a: Tensor
    ) -> None:
        super().__init__(weights, shape, index)
        self.p, self.a = p, a

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        distance = self.distance(t, i)
        if distance == 0:
            # 0^p = 0 for every p > 0, and so is its derivative.
            return torch.zeros((), dtype=self.a.dtype)
        return -self.a[head] * torch.exp(self.p[head] * math.log(distance))


class Sandwich(Bias):
    """b = (sum_k cos(distance / 10000^(2k/d)) - d/2) / (8h/H), k = 0 .. d/2 - 1, h = 1 .. H: the
    inner product of two sinusoidal embeddings of width d (arXiv 2212.10356). The constant d/2 is
    the same for a whole row of scores, which the softmax takes away."""

    def __init__(self, weights: Weights, shape: Shape, index: Sequence[int], width: int) -> None:
        super().__init__(weights, shape, index)
        self.width = width

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        inner = 0.0
        for k in range(self.width // 2):
            frequency = 10_000.0 ** (-2.0 * k / self.width)
            # sin x sin y + cos x cos y, as the embeddings have it.
            x, y = self.index[t] * frequency, self.index[i] * frequency
            inner = inner + math.sin(x) * math.sin(y) + math.cos(x) * math.cos(y)
        return (inner - self.width / 2) / (8.0 * (head + 1) / self.shape.num_heads)


class FIREBias(Bias):
    """What FIRE adds to a score: its score of a query and a key that are zero."""

    def __init__(self, fire: FIRE) -> None:
        super().__init__(fire.weights, fire.shape, fire.index)
        self.fire = fire

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        nothing = torch.zeros(self.shape.head_dim, dtype=torch.float64)
        return self.fire.score(layer, head, t, i, nothing, nothing)


class Mixed(Bias):
    """Each head a slope of its own, or None where it has no positions (NAPE, arXiv 2506.16640)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], slopes: Sequence[float | None]
    ) -> None:
        super().__init__(weights, shape, index)
        self.slopes = list(slopes)

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        slope = self.slopes[head]
        return 0.0 if slope is None else -slope * self.distance(t, i)


class HardALiBi(NoPE):
    """A head with a window w sees the w latest keys, itself among them; one without sees them all
    (Jelassi et al. 2024, arXiv 2402.01032)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], windows: Sequence[int | None]
    ) -> None:
        super().__init__(weights, shape, index)
        self.windows = list(windows)

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        window = self.windows[head]
        near = {
            i: score
            for i, score in scores.items()
            if window is None or self.index[t] - self.index[i] < window
        }
        return super().weigh(layer, head, t, near)


class Shaw(NoPE):
    """q.(k + aK) / sqrt(K), aK the row min(distance, kmax) of a table [kmax + 1, K] of each layer
    (arXiv 1803.02155, Eq. 4, without the values' part)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], tables: Sequence[Tensor]
    ) -> None:
        super().__init__(weights, shape, index)
        self.tables = list(tables)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        table = self.tables[layer]
        row = table[min(self.index[t] - self.index[i], table.shape[0] - 1)]
        total = torch.zeros((), dtype=q.dtype)
        for channel in range(self.shape.head_dim):
            total = total + q[channel] * (k[channel] + row[channel])
        return total / math.sqrt(self.shape.head_dim)
