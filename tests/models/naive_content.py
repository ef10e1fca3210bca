"""Oracles of the content-dependent encodings: loops from their papers' formulas (see naive.py)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.models.naive import NoPE, Shape, Weights, softmax
from tests.models.naive_bias import Bias


def sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


class FoX(NoPE):
    """b_ti = sum_{s = i+1 .. t} ln f_s, f = sigmoid(W x + b) of each head: what was forgotten since
    token i (arXiv 2503.02130)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        w: Sequence[Tensor],
        b: Sequence[Tensor],
    ) -> None:
        """Of each layer: w [H, D], b [H]."""
        super().__init__(weights, shape, index)
        self.w, self.b = list(w), list(b)
        # log_gates[t] [H] of the present layer.
        self.log_gates: list[Tensor] = []

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        self.log_gates = [torch.log(sigmoid(self.w[layer] @ x + self.b[layer])) for x in normed]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        total = super().score(layer, head, t, i, q, k)
        for s in range(i + 1, t + 1):
            total = total + self.log_gates[s][head]
        return total


class CoPE(NoPE):
    """Key i stands at p_ti = min(sum_{s = i .. t} g_ts, P - 1), g = sigmoid(score), as seen from
    query t; the score gains q.e[p], interpolated between the two whole positions around p
    (arXiv 2405.18719, Eq. 3 to 5, and its appendix: gates from the scaled scores, q itself
    unscaled)."""

    def __init__(
        self, weights: Weights, shape: Shape, index: Sequence[int], tables: Sequence[Tensor]
    ) -> None:
        """`tables`: of each layer, [P, K]."""
        super().__init__(weights, shape, index)
        self.tables = list(tables)
        self.queries: list[list[Tensor]] = []

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        self.queries = q

    def weigh(self, layer: int, head: int, t: int, scores: dict[int, Tensor]) -> dict[int, Tensor]:
        table, query = self.tables[layer], self.queries[head][t]
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


class DAPE(NoPE):
    """score + b + f([scores; b]), f = W2 LeakyReLU(W1 . + b1) + b2 across the heads of one pair of
    tokens, b the bias of an additive encoding (arXiv 2405.14722)."""

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        base: Bias,
        w1: Sequence[Tensor],
        b1: Sequence[Tensor],
        w2: Sequence[Tensor],
        b2: Sequence[Tensor],
    ) -> None:
        """Of each layer: w1 [M, 2H], b1 [M], w2 [H, M], b2 [H]."""
        super().__init__(weights, shape, index)
        self.base = base
        self.w1, self.b1, self.w2, self.b2 = list(w1), list(b1), list(w2), list(b2)
        self.q: list[list[Tensor]] = []
        self.k: list[list[Tensor]] = []

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
        both = torch.stack(scores + biases)
        total = scores[head] + biases[head] + self.b2[layer][head]
        for unit in range(self.b1[layer].shape[0]):
            into = self.w1[layer][unit] @ both + self.b1[layer][unit]
            total = total + self.w2[layer][head, unit] * (into if into > 0 else 0.01 * into)
        return total


class PaTH(NoPE):
    """q_t^T H_t H_{t-1} .. H_{i+1} k_i / sqrt(K), H_s = I - beta_s w_s w_s^T (arXiv 2505.16381).

        w = l2norm(SiLU(conv(W2 W1 x))) of each head, beta = 2 sigmoid(Wb x + b)

    x the block's normalized input; conv sees each channel on its own, tap j of n being n - 1 - j
    tokens back.
    """

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        index: Sequence[int],
        w1: Sequence[Tensor],
        w2: Sequence[Tensor],
        conv: Sequence[Tensor],
        wb: Sequence[Tensor],
        b: Sequence[Tensor],
        epsilon: float,
    ) -> None:
        """Of each layer: w1 [R, D], w2 [H K, R], conv [H K, n], wb [H, D], b [H]."""
        super().__init__(weights, shape, index)
        self.w1, self.w2, self.conv = list(w1), list(w2), list(conv)
        self.wb, self.b, self.epsilon = list(wb), list(b), epsilon
        # w[t][h] [K] and beta[t] [H] of the present layer.
        self.w: list[list[Tensor]] = []
        self.beta: list[Tensor] = []

    def before_attention(
        self, layer: int, normed: list[Tensor], q: list[list[Tensor]], k: list[list[Tensor]]
    ) -> None:
        num_heads, head_dim = self.shape.num_heads, self.shape.head_dim
        projected = [self.w2[layer] @ (self.w1[layer] @ x) for x in normed]
        kernel = self.conv[layer]
        taps = kernel.shape[1]
        self.w = []
        for t in range(len(normed)):
            mixed = torch.zeros(num_heads * head_dim, dtype=torch.float64)
            for tap in range(taps):
                source = t - (taps - 1 - tap)
                if source >= 0:
                    mixed = mixed + kernel[:, tap] * projected[source]
            active = silu(mixed)
            heads = []
            for h in range(num_heads):
                part = active[h * head_dim : (h + 1) * head_dim]
                heads.append(part / torch.sqrt((part * part).sum() + self.epsilon))
            self.w.append(heads)
        self.beta = [2.0 * sigmoid(self.wb[layer] @ x + self.b[layer]) for x in normed]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        for s in range(i + 1, t + 1):
            w = self.w[s][head]
            k = k - self.beta[s][head] * w * (w @ k)
        return super().score(layer, head, t, i, q, k)
