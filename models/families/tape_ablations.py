"""TAPE with a part of it taken away: what the paper's Table 6 compares (arXiv 2501.00712,
Appendix B). e~ is A e, or e itself where attention does not gather (`ContextualLayer.gathers`).

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies, L, D rows and columns of e.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tape_arith.models.encoding import State
from tape_arith.models.families.contextual import with_share
from tape_arith.models.families.contextual_layer import ContextualLayer, ReadOut
from tape_arith.models.flops import MatMul


class ShareLayer(ContextualLayer):
    """No MLP: e <- e + s_h e~, s [H], zero at first. Plain e + e~ would not start as RoPE."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(num_heads))

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        return with_share(state, self.s, mixed)


class NonEquivariantLayer(ReadOut):
    """No equivariance: vec(e) <- vec(e) + W2 diag(psi(x~)) W1 vec(e~), with vec(e) =
    (e_11, e_12, e_21, e_22), W1 [W, 4], W2 [4, W]. It mixes the columns of e, on which rotations
    act, and no frequencies; all else is TAPE."""

    mixes = 4

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        matrices = self.entries(heads, list(range(16))).unflatten(-1, (4, 4))
        e = state.e
        vec = mixed.e.unflatten(-1, (2, -1)).flatten(-3, -2)  # [B or 1, T, H, L D, F]
        change = (matrices.to(e.dtype) @ vec.to(e.dtype)).to(e.dtype)  # autocast narrows products
        return type(state).of(e + change.unflatten(-2, (2, 2)).flatten(-2))

    def products(self, rows: int, known: bool) -> Iterable[MatMul]:
        """The read-out's, and G vec(e~)."""
        yield from super().products(rows, known)
        frequencies = self.psi.in_features // 2
        yield MatMul(rows * 16 * frequencies, gradients=1 if known else 2)


class VectorState(NamedTuple):
    """Each frequency's e as one row of two numbers, L = 1 and D = 2: [B or 1, T, H or 1, 2F], one
    half each. The paper's D = 4 is this vector twice, over sqrt(2): no update tells the two apart,
    and inner products and norms are the same."""

    row: Tensor

    @classmethod
    def at(cls, cos: Tensor, sin: Tensor) -> "VectorState":
        return cls(torch.cat((cos, sin), -1))

    @classmethod
    def of(cls, e: Tensor) -> "VectorState":
        """From e [..., 1, 2F]."""
        return cls(e.squeeze(-2))

    @property
    def e(self) -> Tensor:
        """e [..., L = 1, 2F], its columns (D) as halves of the last axis."""
        return self.row[..., None, :]

    def turned(self, x: Tensor) -> Tensor:
        """The outer product of a query or key [B, T, H, 2F] and e, by frequency: [B, T, H, 4F].
        Products of two such are sum_f (q_f . k_f)(e_t . e_i)."""
        wide = x.to(self.row.dtype)
        return torch.cat(
            [wide * column.repeat(1, 1, 1, 2) for column in self.row.chunk(2, -1)], -1
        ).to(x.dtype)


class VectorLayer(ReadOut):
    """Eq. 8 at L = 1: e <- e + g e~, where g = W2 diag(psi(x~)) W1 is one number, W1 [W, 1] and
    W2 [1, W]."""

    mixes = 1

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        (row,), (gathered,) = state, mixed
        share = self.entries(heads, [0]).to(row.dtype)
        return VectorState(row + share * gathered.to(row.dtype))
