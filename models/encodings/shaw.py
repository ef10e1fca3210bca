"""Shaw's relative positions: a learned key for each distance. R: number of distances."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import (
    PositionalEncoding,
    PositionalLayer,
    Setting,
    Workload,
    check_least,
)
from tape_arith.models.families.scores import distances
from tape_arith.models.sequences import Sequences


class Clipped(NamedTuple):
    """distance int64 [B or 1, T, T]: from key i to query t, at most kmax."""

    distance: Tensor


class ShawLayer(PositionalLayer):
    def __init__(self, head_dim: int, kmax: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(kmax + 1, head_dim) * head_dim**-0.5)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Clipped, seqs: Sequences
    ) -> tuple[Tensor, Clipped]:
        batch, tokens, heads, width = q.shape
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(torch.float32, q.dtype)
            # Score all distances first, [B, T, H, R], then pick each key's, because a learned key
            # for each pair of tokens would take K times the memory of the scores.
            scores = seqs.scaled(q.to(dtype) * width**-0.5) @ self.keys.to(dtype).T
            index = state.distance[:, None].expand(batch, heads, tokens, tokens)
            bias = scores.transpose(1, 2).gather(-1, index)
        (attended,) = self.attention(q, k, (v,), seqs, bias=bias)
        return attended, state


class Shaw(PositionalEncoding):
    """A learned key for each distance, added to the token's own key.

    score(t, i) = q_t . (k_i + a[min(t - i, kmax)]) / sqrt(K) (Eq. 4 of the paper, causal). Each
    layer has a table a [kmax + 1, K], shared by its heads, from N(0, K^-1/2), without weight decay.
    The paper's second table, added to the values (Eq. 3), is left out, as in Music Transformer
    (arXiv 1809.04281).

    kmax  distance from which on all distances share a key; by default L0
    """

    kind = "relative bias"
    paper = "Shaw et al. 2018, arXiv 1803.02155"
    no_decay = ("keys",)
    needs = Needs(bias="learned", packed=False)

    def __init__(self, setting: Setting, *, kmax: int | None = None) -> None:
        check_least("shaw", 1, kmax=kmax)
        self.kmax = setting.trained_length if kmax is None else kmax
        super().__init__(setting)

    def trained_reach(self) -> dict[str, int]:
        longest = self.setting.trained_length
        return {"tokens": longest} if longest - 1 <= self.kmax else {}

    def layer(self, i: int) -> PositionalLayer:
        return ShawLayer(self.setting.head_dim, self.kmax)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> Clipped:
        return Clipped(distances(x, index).delta.clamp_max(self.kmax).long())

    def multiply_adds(self, extent: Workload) -> int:
        """Count the products of queries with the key of every distance."""
        return extent.tokens * self.setting.width * (self.kmax + 1)
