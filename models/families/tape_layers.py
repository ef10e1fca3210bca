"""Blocks of TAPE: attention by e, the same attention map over e, and the e of the next block.

`ContextualLayer` and `ReadOut` are the bases; the other layers lack a part of TAPE, as the paper's
Table 6 compares them (arXiv 2501.00712, Appendix B).

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies, L, D rows and columns of e
(2 and 2), W width of psi. e~ is A e, or e itself if attention does not gather e.
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import MatMul, PositionalLayer, State, constant
from tape_arith.models.families.contextual import add_share, clamp_norm
from tape_arith.models.sequences import Sequences


class ContextualLayer(PositionalLayer):
    """Attention by e alone (Eq. 6), as in the last block, whose state has no reader. A leaf
    rewrites e: `contextualize`."""

    #: Whether attention gathers e too (Eq. 7): the e~ of `contextualize` is A e, else e itself.
    gathers = False
    #: Of `clamp_norm`.
    clamp = 0.0

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        scale = q.shape[-1] ** -0.5  # whatever the width of a query that position has turned
        q, k = state.apply(q), state.apply(k)
        carried = state if self.gathers else ()
        heads, *parts = self.attention(q, k, (v, *carried), seqs, scale=scale)
        mixed = type(state)(*parts) if self.gathers else state
        return heads, clamp_norm(self.contextualize(heads, mixed, state), self.clamp)

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        """Compute the e of the next block from heads [B, T, H, K] and mixed, the e~ of Eq. 8."""
        return state

    def products(self, rows: int, known: bool) -> Iterable[MatMul]:
        """Those of `contextualize` for so many rows, a token's heads each; `known`: e~ is no
        function of any parameter."""
        return ()


class ReadOut(ContextualLayer):
    """Base of the leaves with Eq. 8: G = W2 diag(psi(x~)) W1, psi = SiLU(linear), x~ the head's
    attention output; a leaf says what of e~ it acts on. W1 [W, L], W2 [L, W]; W2 = 0 at first."""

    #: What W1 and W2 act on: as many numbers at a time.
    mixes: ClassVar[int]

    def __init__(self, head_dim: int, width: int) -> None:
        super().__init__()
        bound = self.mixes**-0.5
        self.psi = nn.Linear(head_dim, width)
        self.w1 = nn.Parameter(torch.empty(width, self.mixes).uniform_(-bound, bound))
        self.w2 = nn.Parameter(torch.zeros(self.mixes, width))

    def entries(self, heads: Tensor, order: list[int]) -> Tensor:
        """Compute entries of G, counted row by row, in this order: [B, T, H, len(order)]."""
        gate = F.silu(self.psi(heads))
        # W2 diag(g) W1 is linear in g: one small product gives the matrix G of each head.
        matrices = (self.w2[:, None] * self.w1.T[None]).flatten(0, 1)  # [L L, W]
        return F.linear(gate, matrices[constant(order, gate, torch.int64)])

    def products(self, rows: int, known: bool) -> Iterable[MatMul]:
        """Count psi, and the entries of G, each once."""
        head_dim, width = self.psi.in_features, self.psi.out_features
        yield MatMul(rows * head_dim * width)
        yield MatMul(rows * self.mixes**2 * width)


class ShareLayer(ContextualLayer):
    """No MLP: e <- e + s_h e~, s [H], zero at first. Plain e + e~ would not start as RoPE."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(num_heads))

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        return add_share(state, self.s, mixed)


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
        return type(state).from_matrix(e + change.unflatten(-2, (2, 2)).flatten(-2))

    def products(self, rows: int, known: bool) -> Iterable[MatMul]:
        """Count the read-out's products and G vec(e~)."""
        yield from super().products(rows, known)
        frequencies = self.psi.in_features // 2
        yield MatMul(rows * 16 * frequencies, gradients=1 if known else 2)


class VectorState(NamedTuple):
    """Each frequency's e as one row of two numbers, L = 1 and D = 2: [B or 1, T, H or 1, 2F], one
    half each. The paper's D = 4 is this vector twice, over sqrt(2): no update tells the two apart,
    and inner products and norms are the same."""

    row: Tensor

    @classmethod
    def from_angles(cls, cos: Tensor, sin: Tensor) -> "VectorState":
        return cls(torch.cat((cos, sin), -1))

    @classmethod
    def from_matrix(cls, e: Tensor) -> "VectorState":
        """Convert e [..., 1, 2F]."""
        return cls(e.squeeze(-2))

    @property
    def e(self) -> Tensor:
        """e [..., L = 1, 2F], its columns (D) as halves of the last axis."""
        return self.row[..., None, :]

    def apply(self, x: Tensor) -> Tensor:
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
