"""Oracles of the relative biases, from their papers' formulas (see decoder.py)."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from tests.helpers.oracles.decoder import NoPE


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8h/H), h = 1 .. H. If H is no power of two: the slopes of the largest power of two P
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


class Bias(NoPE, ABC):
    """q.k / sqrt(K) and then, unscaled, a bias of each layer, head, query and key."""

    @abstractmethod
    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor | float:
        """The bias of the key at i for the query at t."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        return super().score(layer, head, t, i, q, k) + self.bias(layer, head, t, i)


class ALiBi(Bias):
    """b = -m_h distance, m_h fixed (arXiv 2108.12409)."""

    def slope(self, head: int) -> float:
        return alibi_slopes(self.num_heads)[head]

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        return -self.slope(head) * self.distance(t, i)


class NAPE(ALiBi):
    """ALiBi on the first half of the heads, with slopes 1/h, or its own (arXiv 2506.16640)."""

    def slope(self, head: int) -> float:
        half = self.num_heads // 2
        if head >= half:
            return 0.0
        geometric = self.options.get("slopes") == "geometric"
        return alibi_slopes(half)[head] if geometric else 1.0 / (head + 1)


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """The bucket of a distance >= 0, if no query sees a later key: half of them hold one distance
    each, half are logarithmic up to `max_distance`, the last holds what lies beyond
    (arXiv 1910.10683)."""
    exact = buckets // 2
    if distance < exact:
        return distance
    # The small number is for logarithms whose ratio is an integer but for rounding.
    share = math.log(distance / exact) / math.log(max_distance / exact) + 1e-13
    return min(exact + math.floor(share * (buckets - exact)), buckets - 1)


class T5(Bias):
    """b = r_h[bucket(distance)]; one table [buckets, H] for all layers (arXiv 1910.10683)."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        table, max_distance = self.weights["pe.table"], self.options.get("max_distance", 128)
        return table[t5_bucket(self.distance(t, i), len(table), max_distance), head]


class KerpleLog(Bias):
    """b = -p_h ln(1 + a_h distance), p, a [H] > 0 (arXiv 2205.09921)."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        p, a = self.weights["pe.p"][head], self.weights["pe.a"][head]
        return -p * torch.log(1.0 + a * self.distance(t, i))


class KerplePower(Bias):
    """b = -a_h distance^p_h, a > 0, 0 < p <= 2 [H] (arXiv 2205.09921)."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        p, a = self.weights["pe.p"][head], self.weights["pe.a"][head]
        # 0^p = 0 for every p > 0, and so is its derivative.
        return -a * torch.exp(p * math.log(self.distance(t, i))) if i < t else 0 * a


class Sandwich(Bias):
    """b = (sum_k cos(distance / 10000^(2k/d)) - d/2) / (8h/H), k = 0 .. d/2 - 1, h = 1 .. H: the
    inner product of two sinusoidal embeddings of width d (arXiv 2212.10356). The constant d/2 is
    the same for a row of scores, which the softmax takes away."""

    def bias(self, layer: int, head: int, t: int, i: int) -> float:
        width, inner = self.options.get("width", 128), 0.0
        for k in range(width // 2):
            frequency = 10_000.0 ** (-2.0 * k / width)
            # sin x sin y + cos x cos y, as the embeddings have it.
            x, y = self.index[t] * frequency, self.index[i] * frequency
            inner = inner + math.sin(x) * math.sin(y) + math.cos(x) * math.cos(y)
        return (inner - width / 2) / (8.0 * (head + 1) / self.num_heads)


class FIRE(Bias):
    """b = MLP(psi(t - i) / psi(max(t, L))), psi(x) = ln(|c| x + 1) (arXiv 2310.04418)."""

    def bias(self, layer: int, head: int, t: int, i: int) -> Tensor:
        c = abs(self.named(layer, "c"))
        init_l = self.options.get("init_l", float(self.setting.trained_length))
        threshold = abs(self.named(layer, "l_multiplier") * init_l)
        normalizer = self.index[t] if self.index[t] > threshold else threshold
        ratio = torch.log(c * self.distance(t, i) + 1.0) / (torch.log(c * normalizer + 1.0) + 1e-6)
        hidden = self.named(layer, "hidden.weight")[:, 0] * ratio + self.named(layer, "hidden.bias")
        output, last = self.named(layer, "output.weight"), self.named(layer, "output.bias")
        return output[head] @ (hidden * (hidden > 0)) + last[head]


class HardALiBi(NoPE):
    """The first heads see the w latest keys each, themselves among them; the others see all
    (Jelassi et al. 2024, arXiv 2402.01032)."""

    def weigh(self, layer: int, head: int, t: int, scores: Tensor) -> Tensor:
        if head >= self.options.get("windowed", max(self.num_heads // 2, 1)):
            return super().weigh(layer, head, t, scores)
        window = head + 1 if self.options.get("windows") == "consecutive" else 2**head
        seen = [i for i in range(t + 1) if self.distance(t, i) < window]
        near = super().weigh(layer, head, t, scores[seen])
        return torch.cat((near.new_zeros(t + 1 - len(seen)), near))


class Shaw(NoPE):
    """q.(k + aK) / sqrt(K), aK the row min(distance, kmax) of a table [kmax + 1, K] of each layer
    (arXiv 1803.02155, Eq. 4, without the values' part)."""

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        table = self.named(layer, "keys")
        return super().score(
            layer, head, t, i, q, k + table[min(self.distance(t, i), len(table) - 1)]
        )
