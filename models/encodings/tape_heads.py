"""TAPE in the form of its authors' language-model code, which mixes heads.

Legend: B batch, T tokens, D hidden, H heads, K head dim, F = K/2 frequencies, W width.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.backends.backend import Needs
from models.encoding import PositionalLayer, Setting
from models.errors import UsageError
from models.families.contextual import ContextualRotary
from models.families.rotary import rotate, rotation
from models.products import Extent, Product
from models.sequences import Sequences

# The decoder's own standard deviation, as in the code.
INITIAL_STD = 0.02


class TapeHeadsState(NamedTuple):
    """e [B or 1, T, H or 1, 2F] = [real | imaginary]: one complex number a head and frequency."""

    e: Tensor


class TapeHeadsLayer(PositionalLayer):
    """The last layer's state has no reader, so `contextual` is False there."""

    def __init__(self, setting: Setting, width: int, contextual: bool) -> None:
        super().__init__()
        self.contextual = contextual
        if contextual:
            heads = setting.num_heads
            self.s = nn.Parameter(torch.zeros(heads))
            self.wx = nn.Parameter(torch.randn(width, setting.hidden_size) * INITIAL_STD)
            self.wu = nn.Parameter(torch.zeros(width, heads))
            self.wd = nn.Parameter(torch.randn(heads, width) * INITIAL_STD)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: TapeHeadsState, seqs: Sequences
    ) -> tuple[Tensor, TapeHeadsState]:
        (e,) = state
        by = rotation(*e.chunk(2, -1))
        q, k = rotate(q, by), rotate(k, by)
        if not self.contextual:
            (heads,) = self.attention(q, k, (v,), seqs)
            return heads, state
        heads, mixed = self.attention(q, k, (v, e), seqs)
        return heads, TapeHeadsState(e + self.s[:, None] * mixed.to(e.dtype))

    def update(self, mlp_out: Tensor, state: TapeHeadsState, seqs: Sequences) -> TapeHeadsState:
        """e + Wd diag(SiLU(Wx m)) Wu e, m the output of the MLP."""
        if not self.contextual:
            return state
        (e,) = state
        gate = F.silu(F.linear(mlp_out, self.wx))
        # Wd diag(g) Wu is linear in g: one H x H matrix a token in place of two products of W.
        heads = len(self.s)
        matrices = (self.wd[:, None] * self.wu.T[None]).flatten(0, 1)  # [H H, W]
        mixing = F.linear(gate, matrices).to(e.dtype).unflatten(-1, (heads, heads))
        return TapeHeadsState(e + (mixing @ e).to(e.dtype))


class TapeHeads(ContextualRotary):
    """Contextual rotations as the authors' language-model code updates them: mixing heads.

    Every token, head and frequency has a complex number z, at first exp(i theta t), that turns
    queries and keys. After attention z <- z + s_h (A z); after the block's MLP, whose output is
    m, z <- z + Wd diag(SiLU(Wx m)) Wu z, where Wu and Wd (`width` wide) act on the axis of heads.
    s and Wu are zero at first, so the model starts as RoPE exactly.

    `start` is what z is at first: `rope` (default), `fourier`, exp(i w t) of random Fourier
    features, or `learned`, a table of numbers z, which loses shifts, lengths beyond its rows and
    extrapolations (ContextualRotary says how each is drawn and what it keeps).

    The code stores twice as many numbers (both halves stay equal) and an H x H matrix of which
    only the row sums act; under Adam those move H times faster than one entry, so s learns at H
    times the rate. Invariant under one rotation a frequency, hence under shifts; not under a
    rotation of each head by itself.
    """

    kind = "rotary, contextual"
    paper = "Zhu et al. 2025, arXiv 2501.00712 (VITA-Group/TAPE)"
    needs = Needs(values=2)

    def __init__(
        self,
        setting: Setting,
        *,
        width: int = 48,
        start: Literal["rope", "fourier", "learned"] = "rope",
    ) -> None:
        if width < 1:
            raise UsageError(f"tape-heads: width must be 1 or more, not {width}")
        self.width = width
        super().__init__(setting)
        self.state_shape = (setting.head_dim,)
        self.set_first(start)

    def layer(self, i: int) -> PositionalLayer:
        return TapeHeadsLayer(self.setting, self.width, i < self.setting.num_layers - 1)

    def products(self, extent: Extent) -> Iterable[Product]:
        """Of each layer but the last: A e, Wx m, the H x H matrices, and their products with e."""
        heads, width = self.setting.num_heads, self.setting.head_dim
        numbers = self.setting.hidden_size * self.width + heads**2 * (self.width + width)
        for i in range(self.setting.num_layers - 1):
            # The first e is no function of any parameter, but for a learned table.
            known = not i and self.first != "learned"
            yield Product(extent.pairs * heads * width, gradients=1 if known else 2)
            yield Product(extent.tokens * numbers)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> TapeHeadsState:
        if self.first == "learned":
            return TapeHeadsState(self.rows(index, seqs, x.dtype)[:, :, None])
        return TapeHeadsState(torch.cat(self.cos_sin(index, seqs, x.dtype), -1))

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        for parameter, options in super().parameter_groups():
            # Of a layer, one number a head: s. Nothing else here has one axis.
            faster = {"lr_factor": float(self.setting.num_heads)} if parameter.ndim == 1 else {}
            yield parameter, {**options, **faster}
