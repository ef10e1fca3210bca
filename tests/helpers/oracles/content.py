"""Oracles of the encodings that look at content, from the papers (see decoder.py)."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from tests.helpers.oracles.biases import FIRE, ALiBi, Bias, KerpleLog
from tests.helpers.oracles.decoder import NoPE, Row, causal_filter, silu


class FoX(NoPE):
    """b_ti = sum_{s = i+1 .. t} ln f_s, f = sigmoid(W x + b) of each head: what was forgotten since
    token i (arXiv 2503.02130)."""

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        w, b = self.named(layer, "gate.weight"), self.named(layer, "gate.bias")
        self.log_gates = torch.log(torch.sigmoid(x @ w.T + b))  # [T, H]

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        forgotten = self.log_gates[i + 1 : t + 1, head].sum()
        return super().score(layer, head, t, i, q, k) + forgotten


class Wall(NoPE):
    """sum_n q_tn k_in prod_{s = i+1 .. t} a_sn / sqrt(K), a = sigmoid(W x + b) of each channel of
    each head: FoX's gates in the products, not on the score (Tilde Research's blog, wall-attn)."""

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        w, b = self.named(layer, "gate.weight"), self.named(layer, "gate.bias")
        self.gates = torch.sigmoid(x @ w.T + b).reshape(len(x), self.num_heads, -1)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        for s in range(i + 1, t + 1):
            k = k * self.gates[s, head]
        return super().score(layer, head, t, i, q, k)


class Canon(NoPE):
    """y_t + sum_{j = 0 .. 3} w_j y_{t-j} in place of y_t, for y = q, k and v; w_j a weight of each
    channel, y before the first token zero (Canon-B, arXiv 2512.17351)."""

    def mix(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        taps = self.named(layer, "taps")  # [j, 3, H, K]
        q, k, v = (self.filtered(taps[:, which], y) for which, y in enumerate((q, k, v)))
        return q, k, v

    def filtered(self, taps: Tensor, y: Tensor) -> Tensor:
        heads = []
        for head in range(self.num_heads):
            tokens = []
            for t in range(y.shape[1]):
                total = y[head, t]
                for back in range(min(3, t) + 1):
                    total = total + taps[back, head] * y[head, t - back]
                tokens.append(total)
            heads.append(torch.stack(tokens))
        return torch.stack(heads)


class CoPE(NoPE):
    """Key i stands at p_ti = min(sum_{s = i .. t} g_ts, P - 1), g = sigmoid(score), as seen from
    query t; the score gains q.e[p], interpolated between the two rows of e around p
    (arXiv 2405.18719, Eq. 3 to 5, and its appendix: gates from the scaled scores, q itself
    unscaled). Table e [P, K] of each layer."""

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        self.queries = q

    def weigh(self, layer: int, head: int, t: int, scores: Tensor) -> Tensor:
        table, query = self.named(layer, "table"), self.queries[head, t]
        raised = []
        for i in range(t + 1):
            position = torch.sigmoid(scores[i:]).sum()
            if position > len(table) - 1:
                raised.append(scores[i] + query @ table[-1])
                continue
            below = math.floor(float(position.detach()))
            above = math.ceil(float(position.detach()))
            share = position - below
            row = share * table[above] + (1.0 - share) * table[below]
            raised.append(scores[i] + query @ row)
        return super().weigh(layer, head, t, torch.stack(raised))


class StickBreaking(NoPE):
    """Going back from query t, each earlier key takes the share beta = sigmoid(score) of what is
    left; the remainder goes to the token itself (arXiv 2410.17980)."""

    def weigh(self, layer: int, head: int, t: int, scores: Tensor) -> Tensor:
        left, taken = scores.new_ones(()), []
        for i in range(t - 1, -1, -1):
            beta = torch.sigmoid(scores[i])
            taken.append(beta * left)
            left = left * (1.0 - beta)
        return torch.stack([*reversed(taken), left])


class DAPE(NoPE):
    """score + b + f([scores; b]), f = W2 LeakyReLU(W1 . + b1) + b2 across the heads of one pair of
    tokens, b the bias of an additive encoding (arXiv 2405.14722). W1 [M, 2H], W2 [H, M]."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        bases: dict[str, type[Bias]] = {"alibi": ALiBi, "kerple-log": KerpleLog, "fire": FIRE}
        weights = {name.replace(".base.", "."): weight for name, weight in self.weights.items()}
        self.base = bases[self.options.get("base", "kerple-log")](replace(row, weights=weights))

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        self.q, self.k = q, k

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        scores = (self.q[:, t] * self.k[:, i]).sum(1) / math.sqrt(len(q))
        heads = range(self.num_heads)
        biases = torch.stack([scores.new_zeros(()) + self.base.bias(layer, h, t, i) for h in heads])
        w1, b1 = self.named(layer, "mlp_hidden.weight"), self.named(layer, "mlp_hidden.bias")
        w2, b2 = self.named(layer, "mlp_output.weight"), self.named(layer, "mlp_output.bias")
        into = w1 @ torch.cat((scores, biases)) + b1
        inner = torch.where(into > 0, into, 0.01 * into)
        return scores[head] + biases[head] + w2[head] @ inner + b2[head]


class PaTH(NoPE):
    """q_t^T H_t H_{t-1} .. H_{i+1} k_i / sqrt(K), H_s = I - beta_s w_s w_s^T (arXiv 2505.16381).

        w = l2norm(SiLU(conv(W2 W1 x))) of each head, beta = 2 sigmoid(Wb x + b)

    x the block's normalized input.
    """

    def before_attention(self, layer: int, x: Tensor, q: Tensor, k: Tensor) -> None:
        projected = x @ self.named(layer, "down").T @ self.named(layer, "up").T
        taps = self.named(layer, "taps")
        active = torch.stack([silu(causal_filter(taps, projected, t)) for t in range(len(x))])
        w = active.reshape(len(x), self.num_heads, -1)
        self.w = w / torch.sqrt((w * w).sum(2, keepdim=True) + 1e-6)
        logits = x @ self.named(layer, "beta.weight").T + self.named(layer, "beta.bias")
        self.beta = 2.0 * torch.sigmoid(logits)

    def score(self, layer: int, head: int, t: int, i: int, q: Tensor, k: Tensor) -> Tensor:
        for s in range(i + 1, t + 1):
            w = self.w[s, head]
            k = k - self.beta[s, head] * w * (w @ k)
        return super().score(layer, head, t, i, q, k)
