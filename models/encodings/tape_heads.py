"""TAPE in the form of its authors' language-model code, which mixes heads.

Legend: B batch, T tokens, D hidden, H heads, K head dim, F = K/2 frequencies, W width.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import (
    INITIAL_STD,
    MatMul,
    PositionalLayer,
    Setting,
    State,
    Workload,
)
from tape_arith.models.families.contextual import (
    ContextualRotary,
    add_share,
    check_options,
    clamp_norm,
)
from tape_arith.models.families.rotary import rotate, rotation, trace_products
from tape_arith.models.sequences import Sequences

# The decoder's own standard deviation, as in the code.


class TapeHeadsState(NamedTuple):
    """e [B or 1, T, H or 1, 2F] = [real | imaginary]: one complex number a head and frequency."""

    e: Tensor


class TapeHeadsLayer(PositionalLayer):
    """Two updates of a block, each there or not: `gathers` after attention, `mixes` after the MLP.
    The last layer has neither, for its state has no reader."""

    def __init__(
        self, setting: Setting, width: int, *, gathers: bool, mixes: bool, clamp: float
    ) -> None:
        super().__init__()
        self.gathers, self.mixes, self.clamp = gathers, mixes, clamp
        heads = setting.num_heads
        if gathers:
            self.s = nn.Parameter(torch.zeros(heads))
        if mixes:
            self.wx = nn.Parameter(torch.randn(width, setting.hidden_size) * INITIAL_STD)
            self.wu = nn.Parameter(torch.zeros(width, heads))
            self.wd = nn.Parameter(torch.randn(heads, width) * INITIAL_STD)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: TapeHeadsState, seqs: Sequences
    ) -> tuple[Tensor, TapeHeadsState]:
        (e,) = state
        by = rotation(*e.chunk(2, -1))
        q, k = rotate(q, by), rotate(k, by)
        if not self.gathers:
            (heads,) = self.attention(q, k, (v,), seqs)
            return heads, state
        heads, mixed = self.attention(q, k, (v, e), seqs)
        return heads, add_share(state, self.s, TapeHeadsState(mixed))

    def update(self, mlp_out: Tensor, state: TapeHeadsState, seqs: Sequences) -> TapeHeadsState:
        """Mix the heads if this layer does, then clamp; both halves of e count."""
        return clamp_norm(self.mixed(mlp_out, state) if self.mixes else state, self.clamp, copies=2)

    def mixed(self, mlp_out: Tensor, state: TapeHeadsState) -> TapeHeadsState:
        """Compute e + Wd diag(SiLU(Wx m)) Wu e, m the output of the MLP."""
        (e,) = state
        gate = F.silu(F.linear(mlp_out, self.wx))
        # Wd diag(g) Wu is linear in g: one H x H matrix a token in place of two products of W.
        heads = len(self.wd)
        matrices = (self.wd[:, None] * self.wu.T[None]).flatten(0, 1)  # [H H, W]
        mixing = F.linear(gate, matrices).to(e.dtype).unflatten(-1, (heads, heads))
        e = e.expand(-1, -1, heads, -1)  # one for all heads until the first update
        return TapeHeadsState(e + (mixing @ e).to(e.dtype))


class TapeHeads(ContextualRotary):
    """Contextual rotations as the authors' language-model code updates them: mixing heads.

    Every token, head and frequency has a complex number z, at first exp(i theta t), that turns
    queries and keys. After attention z <- z + s_h (A z); after the block's MLP, whose output is
    m, z <- z + Wd diag(SiLU(Wx m)) Wu z, where Wu [width, H] and Wd [H, width] act on the axis of
    heads, Wx is [width, D] and s [H]. s and Wu are zero at first, so the model starts as RoPE
    exactly. The paper's equations are those of `tape`; this is its released code.

    `start` is what z is at first: `rope` (default), `fourier`, exp(i w t) of random Fourier
    features, or `learned`, a table of numbers z, which loses shifts, lengths beyond its rows and
    extrapolations (ContextualRotary says how each is drawn and what it keeps).

    The code stores twice as many numbers (both halves stay equal) and an H x H matrix of which
    only the row sums act; under Adam those move H times faster than one entry, so s learns at H
    times the rate. Invariant under one rotation a frequency, hence under shifts; not under a
    rotation of each head by itself.

    Of the paper's ablations (see TAPE), what there is to take away from two updates:
    - `context=no-attention` leaves out the first, and s (with A taken for the identity instead,
      s_h would be a factor of the head that its queries and keys can have anyway).
    - `context=no-mlp` leaves out the second, and Wx, Wu and Wd, as the code's `adattention`. It is
      then the same model as tape:context=no-mlp.
    - `clamp=c` (off: 0): after each block z is divided by max(1, ||e||_F / c), where
      e = [[a, -b], [b, a]] is the matrix of z = a + ib, of norm sqrt(2) |z|.
    - `width`: to sweep over H, 2H, 3H, 4H and 8H (`ablate` takes tape's widths for both).
    All start as RoPE (clamp: from sqrt(2) on) and keep the symmetry. There is no `form` without
    equivariance: the code's ones let the two halves of e part, of which z holds one, and how they
    start is not known here.
    """

    kind = "rotary, contextual"
    paper = "Zhu et al. 2025, arXiv 2501.00712 (VITA-Group/TAPE)"

    def __init__(
        self,
        setting: Setting,
        *,
        width: int = 48,
        start: Literal["rope", "fourier", "learned"] = "rope",
        context: Literal["full", "no-attention", "no-mlp"] = "full",
        clamp: float = 0,
    ) -> None:
        check_options("tape-heads", width, context, clamp)
        self.width, self.clamp = width, clamp
        self.gathers, self.mixes = context != "no-attention", context != "no-mlp"
        super().__init__(setting)
        self.state_shape = (setting.head_dim,)
        self.set_first(start)
        # Of this one, not of the class: options change it.
        vars(self)["needs"] = Needs(values=1 + self.gathers)

    def layer(self, i: int) -> PositionalLayer:
        read = i < self.setting.num_layers - 1
        return TapeHeadsLayer(
            self.setting,
            self.width,
            gathers=read and self.gathers,
            mixes=read and self.mixes,
            clamp=self.clamp if read else 0.0,
        )

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """Of each layer but the last, as far as it has them: A e; Wx m, the H x H matrices, and
        their products with e."""
        heads, width = self.setting.num_heads, self.setting.head_dim
        for i in range(self.setting.num_layers - 1):
            # The first e is no function of any parameter, but for a learned table.
            known = not i and self.first != "learned"
            if self.gathers:
                yield MatMul(extent.pairs * heads * width, gradients=1 if known else 2)
            if self.mixes:
                numbers = self.setting.hidden_size * self.width + heads**2 * self.width
                yield MatMul(extent.tokens * numbers)
                given = known and not self.gathers
                yield MatMul(extent.tokens * heads**2 * width, gradients=1 if given else 2)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> TapeHeadsState:
        if self.first == "learned":
            return TapeHeadsState(self.rows(index, seqs, x.dtype)[:, :, None])
        return TapeHeadsState(torch.cat(self.cos_sin(index, seqs, x.dtype), -1))

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        """Measure as the base does; the norm is that of the 2x2 matrix that acts as z does."""
        measures = super().measures(first, state)
        return {**measures, "norm": 2**0.5 * measures["norm"]}

    def inner_products(self, state: TapeHeadsState) -> Tensor:
        """Multiply the 2x2 matrices that act as z does: 2 sum_f Re(z_t conj z_i)."""
        by = rotation(*state.e.chunk(2, -1))
        return trace_products(by, by)
