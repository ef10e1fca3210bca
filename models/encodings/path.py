"""PaTH: position encoding by accumulated Householder transformations. R: rank."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.attention import scaled_scores
from tape_arith.models.encoding import (
    INITIAL_STD,
    MatMul,
    PositionalLayer,
    Setting,
    State,
    Workload,
    check_least,
)
from tape_arith.models.families.scores import FromScores, ScoresLayer

TAPS = 3
EPSILON = 1e-6


class PaTHLayer(ScoresLayer):
    def __init__(self, setting: Setting, rank: int) -> None:
        super().__init__()
        self.num_heads = setting.num_heads
        width = setting.num_heads * setting.head_dim
        self.down = nn.Parameter(torch.randn(rank, setting.hidden_size) * INITIAL_STD)
        self.up = nn.Parameter(torch.randn(width, rank) * INITIAL_STD)
        self.taps = nn.Parameter(torch.randn(width, TAPS) * INITIAL_STD)
        self.beta = nn.Linear(setting.hidden_size, setting.num_heads)
        nn.init.normal_(self.beta.weight, std=INITIAL_STD)
        nn.init.zeros_(self.beta.bias)

    def directions(self, x: Tensor) -> Tensor:
        """Compute the unit vectors w of all tokens, [B, H, T, K], from x [B, T, D]."""
        low = F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))
        near = F.pad(low, (0, 0, TAPS - 1, 0)).unfold(1, TAPS, 1)  # [B, T, HK, 3]
        mixed = (near * self.taps.to(x.dtype)).sum(-1)
        w = F.silu(mixed).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return w * (w.square().sum(-1, keepdim=True) + EPSILON).rsqrt()

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        w = self.directions(x)
        bias = self.beta.bias.to(x.dtype)
        beta = 2 * F.linear(x, self.beta.weight.to(x.dtype), bias).sigmoid()
        beta = beta.transpose(1, 2)[..., None]  # [B, H, T, 1]
        # H_s moves key i along w_s by moved[s, i]. Their recurrence is a triangular system.
        among = beta * (w @ w.transpose(-1, -2))
        onto = (beta * (w @ k.permute(0, 2, 3, 1))).tril(-1)
        moved = torch.linalg.solve_triangular(among, onto, upper=False, unitriangular=True)
        along = ((q * q.shape[-1] ** -0.5).transpose(1, 2) @ w.transpose(-1, -2)).tril()
        return scaled_scores(q, k) - along @ moved


class PaTH(FromScores):
    """Keys transformed by a Householder map of every token between key and query.

    s(t, i) = q_t^T H_t H_{t-1} .. H_{i+1} k_i / sqrt(K), H_s = I - beta_s w_s w_s^T, for each head;
    w = u / sqrt(|u|^2 + 1e-6), u = SiLU(conv(W2 W1 x)), conv a filter of each channel over 3 tokens
    (taps[:, 2] on the token itself, zeros before the first); beta = 2 sigmoid(W x + b). W1 [R, D],
    W2 [HK, R], W [H, D] and taps [HK, 3] start from N(0, 0.02), b [H] from 0 (so beta is near 1 and
    H nearly projects). This code agrees with the authors' (flash-linear-attention,
    layers/path_attn.py, 27289fc), which rounds w to float16. Their forget gate is left out.

    The code builds no H: with x_s = beta_s (w_s k_i - sum of (w_s w_r) x_r over i < r < s), s(t, i)
    sqrt(K) = q_t k_i - sum over i < s <= t of (q_t w_s) x_s, and one triangular system of T
    unknowns gives all x, with 1.5 T^3 multiply-adds per head.

    rank  R, the width between W1 and W2
    """

    paper = "Yang et al. 2025, arXiv 2505.16381"

    def __init__(self, setting: Setting, *, rank: int = 32) -> None:
        check_least("path", 1, rank=rank)
        self.rank = rank
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return PaTHLayer(self.setting, self.rank)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List per layer w and beta, products of w with w, keys and queries, and the sum over s.

        The sum is over triples of tokens: pairs^2 / tokens if all lengths are equal, which for
        causal pairs is 1.5 times the number needed.
        """
        hidden, heads = self.setting.hidden_size, self.setting.num_heads
        width = heads * self.setting.head_dim
        numbers = (hidden + width) * self.rank + hidden * heads
        triples = extent.pairs**2 // max(extent.tokens, 1)
        for _ in range(self.setting.applied_layers):
            yield MatMul(extent.tokens * numbers)
            yield MatMul(3 * extent.pairs * width)
            # Solving is no product, but its backward needs one more.
            yield MatMul(triples * heads, gradients=3)
