"""Oracles of the relative biases: loops from their papers' formulas (see decoder.py)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.helpers.oracles.decoder import NoPE


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


class Bias(NoPE):
    """q.k / sqrt(K) and then, unscaled, a bias of each layer, head, query and key."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor | float:
        raise NotImplementedError

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        return super().score(layer, head, t, i, q, k) + self.bias(layer, head, t, i)


@dataclass
class ALiBi(Bias):
    """b = -m_h distance, m_h fixed (arXiv 2108.12409); m_h = 0 for a head without positions (NAPE,
    arXiv 2506.16640)."""

    slopes: Sequence[float]

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        return -self.slopes[head] * self.distance(t, i)


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """Which of `buckets` a distance >= 0 falls into, where no query sees a later key: half of them
    hold one distance each, half are logarithmic up to `max_distance`, the last holds what lies
    beyond (arXiv 1910.10683)."""
    exact = buckets // 2
    if distance < exact:
        return distance
    # The small number is for logarithms whose ratio is whole but for rounding.
    share = math.log(distance / exact) / math.log(max_distance / exact) + 1e-13
    return min(exact + math.floor(share * (buckets - exact)), buckets - 1)


@dataclass
class T5(Bias):
    """b = r_h[bucket(distance)]; one table [buckets, H] for all layers (arXiv 1910.10683)."""

    max_distance: int

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        table = self.weights["pe.table"]
        return table[t5_bucket(self.distance(t, i), table.shape[0], self.max_distance), head]


@dataclass
class KerpleLog(Bias):
    """b = -p_h ln(1 + a_h distance), p, a [H] > 0 (arXiv 2205.09921)."""

    prefix: str = "pe"

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        p, a = self.weights[f"{self.prefix}.p"], self.weights[f"{self.prefix}.a"]
        return -p[head] * torch.log(1.0 + a[head] * self.distance(t, i))


class KerplePower(Bias):
    """b = -a_h distance^p_h, a > 0, 0 < p <= 2 [H] (arXiv 2205.09921)."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        p, a, distance = self.weights["pe.p"], self.weights["pe.a"], self.distance(t, i)
        if distance == 0:
            # 0^p = 0 for every p > 0, and so is its derivative.
            return torch.zeros((), dtype=a.dtype)
        return -a[head] * torch.exp(p[head] * math.log(distance))


@dataclass
class Sandwich(Bias):
    """b = (sum_k cos(distance / 10000^(2k/d)) - d/2) / (8h/H), k = 0 .. d/2 - 1, h = 1 .. H: the
    inner product of two sinusoidal embeddings of width d (arXiv 2212.10356). The constant d/2 is
    the same for a whole row of scores, which the softmax takes away."""

    width: int

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        inner = 0.0
        for k in range(self.width // 2):
            frequency = 10_000.0 ** (-2.0 * k / self.width)
            # sin x sin y + cos x cos y, as the embeddings have it.
            x, y = self.index[t] * frequency, self.index[i] * frequency
            inner = inner + math.sin(x) * math.sin(y) + math.cos(x) * math.cos(y)
        return (inner - self.width / 2) / (8.0 * (head + 1) / self.shape.num_heads)


@dataclass
class FIRE(Bias):
    """b = MLP(psi(t - i) / psi(max(t, L))), psi(x) = ln(|c| x + 1) (arXiv 2310.04418)."""

    init_l: float
    prefix: str = "pe.layers.{}"

    def named(self, layer: int, name: str) -> Tensor:
        return self.weights[f"{self.prefix.format(layer)}.{name}"]

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        c = self.named(layer, "c")
        threshold = abs(self.named(layer, "l_multiplier") * self.init_l)
        query_index = torch.tensor(float(self.index[t]), dtype=c.dtype)
        normalizer = query_index if query_index > threshold else threshold
        distance = self.distance(t, i)
        ratio = torch.log(abs(c) * distance + 1.0) / (torch.log(abs(c) * normalizer + 1.0) + 1e-6)
        bias = self.named(layer, "output.bias")[head]
        for unit in range(self.named(layer, "hidden.bias").shape[0]):
            into = self.named(layer, "hidden.weight")[unit, 0] * ratio
            into = into + self.named(layer, "hidden.bias")[unit]
            if into > 0:
                bias = bias + self.named(layer, "output.weight")[head, unit] * into
        return bias


@dataclass
class HardALiBi(NoPE):
    """A head with a window w sees the w latest keys, itself among them; one without sees them all
    (Jelassi et al. 2024, arXiv 2402.01032)."""

    windows: Sequence[int | None]

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        window = self.windows[head]
        near = {i: s for i, s in scores.items() if window is None or self.distance(t, i) < window}
        return super().weigh(layer, head, t, near)


class Shaw(NoPE):
    """q.(k + aK) / sqrt(K), aK the row min(distance, kmax) of a table [kmax + 1, K] of each layer
    (arXiv 1803.02155, Eq. 4, without the values' part)."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        table = self.named(layer, "keys")
        row = table[min(self.distance(t, i), table.shape[0] - 1)]
        return super().score(layer, head, t, i, q, k + row)
