"""RePo: context re-positioning."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import (
    INITIAL_STD,
    MatMul,
    PositionalLayer,
    Setting,
    State,
    Workload,
)
from tape_arith.models.families.rotary import Rotary, geometric_frequencies, rotate, rotation
from tape_arith.models.sequences import Sequences


class RePoLayer(PositionalLayer):
    def __init__(self, setting: Setting, width: int, base: float) -> None:
        super().__init__()
        self.base = base
        self.gate = nn.Linear(setting.hidden_size, width, bias=False)
        self.content = nn.Linear(setting.hidden_size, width, bias=False)
        self.position = nn.Linear(width, setting.num_heads, bias=False)
        for linear in (self.gate, self.content, self.position):
            nn.init.normal_(linear.weight, std=INITIAL_STD)

    def positions(self, x: Tensor) -> Tensor:
        """Compute the index z of each token in each head, [B, T, H], from x [B, T, D]."""
        gate, content, position = (
            linear.weight.to(x.dtype) for linear in (self.gate, self.content, self.position)
        )
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, content), position)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        # Without autocast, because bfloat16 skips whole numbers beyond 256.
        with torch.autocast(x.device.type, enabled=False):
            z = self.positions(x.to(torch.promote_types(torch.float32, x.dtype)))
            theta = geometric_frequencies(q.shape[-1] // 2, self.base, x.device)
            angles = z[..., None] * theta.to(z.dtype)
            by = rotation(angles.cos(), angles.sin())
        return super().attend(x, rotate(q, by), rotate(k, by), v, state, seqs)


class RePo(Rotary):
    """RoPE at real indices that every token computes, after a first third of plain RoPE layers.

    In layers floor(L/3) .. L - 1, counted from 0, token t of head h rotates by theta_f z_th in
    place of theta_f t, z_th = w_h (SiLU(W_g x_t) * W_c x_t), x the block's normalized input,
    theta_f = base^(-2f/K). The layers before, one of mini's four, are plain RoPE. W_g, W_c
    [D // 8, D] and w [H, D // 8] of each layer start from N(0, 0.02), so that all tokens have
    nearly the same index at first. z_t depends on x_t alone: it knows the order of tokens only as
    far as earlier layers left it in x.

    This code agrees with the authors' (SakanaAI/repo, models/olmo2, c2f458d), who continue the
    training of OLMo-2 (L = 16, from layer 5 on). `aug-repo` scales the indices of the plain layers
    alone.

    base  as for `rope`, in all layers
    """

    kind = "content"
    paper = "Li et al. 2025, arXiv 2512.14391"
    not_rescalable = "most of its layers compute their indices, which need not grow with the length"

    def __init__(self, setting: Setting, *, base: float = 10_000.0) -> None:
        self.first = setting.num_layers // 3
        self.width = max(setting.hidden_size // 8, 1)
        super().__init__(setting, base=base)

    def layer(self, i: int) -> PositionalLayer:
        if i < self.first:
            return super().layer(i)
        return RePoLayer(self.setting, self.width, self.base)

    def inner_products(self, state: State) -> None:
        """Return None: the state holds no positions of the layers that compute theirs."""

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List the products that compute the indices, for each layer that does."""
        setting = self.setting
        numbers = self.width * (2 * setting.hidden_size + setting.num_heads)
        return [MatMul(extent.tokens * numbers)] * (
            (setting.num_layers - self.first) * setting.loops
        )
