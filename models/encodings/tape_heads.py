"""TAPE as in its authors' language-model code, which mixes heads."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import INITIAL_STD, MatMul, Setting
from tape_arith.models.families.contextual import ContextualLayer, ContextualRotary, add_share
from tape_arith.models.families.rotary import Rotation, rotate, rotation, trace_products
from tape_arith.models.sequences import Sequences


class TapeHeadsState(NamedTuple):
    """e [B or 1, T, H or 1, 2F] = [real | imaginary]: a complex number per head and frequency."""

    e: Tensor

    @classmethod
    def from_angles(cls, cos: Tensor, sin: Tensor) -> "TapeHeadsState":
        return cls(torch.cat((cos, sin), -1))

    @classmethod
    def from_matrix(cls, e: Tensor) -> "TapeHeadsState":
        return cls(e)

    def rotation(self) -> Rotation:
        return rotation(*self.e.chunk(2, -1))

    def apply(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate and scale queries and keys [B, T, H, 2F]."""
        by = self.rotation()
        return rotate(q, by), rotate(k, by)


class TapeHeadsLayer(ContextualLayer):
    """Adds s A e after attention if `gathers` is set; mixes heads after the MLP."""

    def __init__(self, setting: Setting, width: int, *, gathers: bool) -> None:
        super().__init__()
        self.head_dim, heads = setting.head_dim, setting.num_heads
        if gathers:
            self.s = nn.Parameter(torch.zeros(heads))
        self.wx = nn.Parameter(torch.randn(width, setting.hidden_size) * INITIAL_STD)
        self.wu = nn.Parameter(torch.zeros(width, heads))
        self.wd = nn.Parameter(torch.randn(heads, width) * INITIAL_STD)

    def contextualize(
        self, heads: Tensor, mixed: TapeHeadsState, state: TapeHeadsState
    ) -> TapeHeadsState:
        return add_share(state, self.s, mixed) if self.gathers else state

    def update(self, mlp_out: Tensor, state: TapeHeadsState, seqs: Sequences) -> TapeHeadsState:
        """Compute e + Wd diag(SiLU(Wx m)) Wu e, m the output of the MLP, and clamp it."""
        gate = F.silu(F.linear(mlp_out, self.wx))
        # Wd diag(g) Wu is linear in g: one H x H matrix per token replaces two products.
        heads = len(self.wd)
        matrices = (self.wd[:, None] * self.wu.T[None]).flatten(0, 1)  # [H H, W]
        mixing = F.linear(gate, matrices).to(state.e.dtype).unflatten(-1, (heads, heads))
        e = state.e.expand(-1, -1, heads, -1)  # one for all heads until the first update
        return super().update(mlp_out, TapeHeadsState(e + (mixing @ e).to(e.dtype)), seqs)

    def products(self, tokens: int, num_heads: int, known: bool) -> Iterable[MatMul]:
        """List Wx m, the H x H matrices, and their products with e."""
        width, hidden = self.wx.shape
        yield MatMul(tokens * (hidden * width + num_heads**2 * width))
        yield MatMul(tokens * num_heads**2 * self.head_dim, gradients=1 if known else 2)


class TapeHeads(ContextualRotary):
    """Contextual rotations, updated across heads as in the authors' language-model code.

    Every token, head and frequency has a complex number z, at first exp(i theta t), that rotates
    queries and keys. After attention z <- z + s_h (A z); after the block's MLP, whose output is m,
    z <- z + Wd diag(SiLU(Wx m)) Wu z, where Wu [width, H] and Wd [H, width] act on the axis of
    heads, Wx is [width, D] and s [H]. s and Wu are zero at first, so the model starts exactly as
    RoPE. It is invariant under one rotation per frequency, hence under shifts, but not under a
    separate rotation of each head. `tape` has the paper's equations.

    The code stores each number twice (both halves stay equal) and, for s, an H x H matrix of which
    only the row sums act (see `parameter_groups`).

    width    rows of Wu and of Wx
    start    z at first, as for `tape`
    context  "no-attention" leaves out the first update and s (if A were the identity, s_h would
             only scale a head's queries and keys, as their projections can); "no-mlp" leaves out
             the second update, as the code's `adattention`: the same model as tape:context=no-mlp
    clamp    c (0: none): after each block z is divided by max(1, ||e||_F / c), where the matrix
             e = [[a, -b], [b, a]] of z = a + ib has the norm sqrt(2) |z|
    base     of the rotation of `start=rope`, as for `rope`
    """

    label = "TAPE-heads"
    paper = "Zhu et al. 2025, arXiv 2501.00712 (VITA-Group/TAPE)"
    state_type = TapeHeadsState
    leading_shape = ()
    copies = 2

    def __init__(
        self,
        setting: Setting,
        *,
        width: int = 48,
        start: Literal["rope", "fourier", "learned"] = "rope",
        context: Literal["full", "no-attention", "no-mlp"] = "full",
        clamp: float = 0,
        base: float = 10_000.0,
    ) -> None:
        super().__init__(
            setting, "tape-heads", width=width, start=start, context=context, clamp=clamp, base=base
        )

    def updating_layer(self) -> ContextualLayer:
        return TapeHeadsLayer(self.setting, self.width, gathers=self.context == "full")

    def inner_products(self, state: TapeHeadsState) -> Tensor:
        """Multiply the 2x2 matrices that act like z: 2 sum_f Re(z_t conj z_i)."""
        by = state.rotation()
        return trace_products(by, by)
