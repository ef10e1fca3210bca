"""Oracles of the encodings that look at content: loops from the papers (see decoder.py)."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.helpers.oracles.biases import Bias
from tests.helpers.oracles.decoder import NoPE, causal_filter, sigmoid, silu, softmax


@dataclass
class FoX(NoPE):
    """b_ti = sum_{s = i+1 .. t} ln f_s, f = sigmoid(W x + b) of each head: what was forgotten since
    token i (arXiv 2503.02130)."""

    #: [t] [H] of the present layer.
    log_gates: list[Tensor] = field(default_factory=list)

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        w, b = self.named(layer, "gate.weight"), self.named(layer, "gate.bias")
        self.log_gates = [torch.log(sigmoid(w @ x + b)) for x in normed]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        total = super().score(layer, head, t, i, q, k)
        for s in range(i + 1, t + 1):
            total = total + self.log_gates[s][head]
        return total


@dataclass
class CoPE(NoPE):
    """Key i stands at p_ti = min(sum_{s = i .. t} g_ts, P - 1), g = sigmoid(score), as seen from
    query t; the score gains q.e[p], interpolated between the two whole positions around p
    (arXiv 2405.18719, Eq. 3 to 5, and its appendix: gates from the scaled scores, q itself
    unscaled). Table e [P, K] of each layer."""

    queries: list[list[Tensor]] = field(default_factory=list)

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        self.queries = q

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        table, query = self.named(layer, "table"), self.queries[head][t]
        last = table.shape[0] - 1
        raised = {}
        for i, score in scores.items():
            position = torch.zeros((), dtype=score.dtype)
            for s in range(i, t + 1):
                position = position + sigmoid(scores[s])
            if position > last:
                raised[i] = score + query @ table[last]
                continue
            below = math.floor(float(position.detach()))
            above = math.ceil(float(position.detach()))
            share = position - below
            raised[i] = score + share * (query @ table[above])
            raised[i] = raised[i] + (1.0 - share) * (query @ table[below])
        return softmax(raised)


class StickBreaking(NoPE):
    """Going back from query t, each earlier key takes the share beta = sigmoid(score) of what is
    left; the remainder goes to the token itself (arXiv 2410.17980)."""

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        left = torch.ones((), dtype=torch.float64)
        taken = {}
        for i in range(t - 1, -1, -1):
            beta = sigmoid(scores[i])
            taken[i] = beta * left
            left = left * (1.0 - beta)
        taken[t] = left
        return taken


@dataclass
class DAPE(NoPE):
    """score + b + f([scores; b]), f = W2 LeakyReLU(W1 . + b1) + b2 across the heads of one pair of
    tokens, b the bias of an additive encoding (arXiv 2405.14722). W1 [M, 2H], W2 [H, M]."""

    base: Bias
    q: list[list[Tensor]] = field(default_factory=list)
    k: list[list[Tensor]] = field(default_factory=list)

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        self.q, self.k = q, k

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        heads = range(self.shape.num_heads)
        scores = [
            super(DAPE, self).score(layer, h, t, i, self.q[h][t], self.k[h][i]) for h in heads
        ]
        biases = [torch.as_tensor(self.base.bias(layer, h, t, i), dtype=q.dtype) for h in heads]
        w1, b1 = self.named(layer, "mlp_hidden.weight"), self.named(layer, "mlp_hidden.bias")
        w2, b2 = self.named(layer, "mlp_output.weight"), self.named(layer, "mlp_output.bias")
        into = w1 @ torch.stack(scores + biases) + b1
        inner = torch.stack([x if x > 0 else 0.01 * x for x in into])
        return scores[head] + biases[head] + w2[head] @ inner + b2[head]


@dataclass
class PaTH(NoPE):
    """q_t^T H_t H_{t-1} .. H_{i+1} k_i / sqrt(K), H_s = I - beta_s w_s w_s^T (arXiv 2505.16381).

        w = l2norm(SiLU(conv(W2 W1 x))) of each head, beta = 2 sigmoid(Wb x + b)

    x the block's normalized input.
    """

    #: w[t][h] [K] and beta[t] [H] of the present layer.
    w: list[tuple[Tensor, ...]] = field(default_factory=list)
    beta: list[Tensor] = field(default_factory=list)

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        projected = [self.named(layer, "up") @ (self.named(layer, "down") @ x) for x in normed]
        self.w = []
        for t in range(len(normed)):
            active = silu(causal_filter(self.named(layer, "taps"), projected, t))
            parts = active.chunk(self.shape.num_heads)
            self.w.append(tuple(part / torch.sqrt((part * part).sum() + 1e-6) for part in parts))
        wb, b = self.named(layer, "beta.weight"), self.named(layer, "beta.bias")
        self.beta = [2.0 * sigmoid(wb @ x + b) for x in normed]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        for s in range(i + 1, t + 1):
            w = self.w[s][head]
            k = k - self.beta[s][head] * w * (w @ k)
        return super().score(layer, head, t, i, q, k)
