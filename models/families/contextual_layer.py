"""A block of TAPE: attention by e, the same attention map over e, and what e becomes by both.

Legend: B batch, T tokens, H heads, K head dim, L = D = 2 rows and columns of e, W width of psi.
"""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import PositionalLayer, State, constant
from tape_arith.models.families.contextual import clamped
from tape_arith.models.flops import MatMul
from tape_arith.models.sequences import Sequences


class ContextualLayer(PositionalLayer):
    """Attention by e alone (Eq. 6), as in the last block, whose state has no reader. A leaf
    rewrites e: `contextualize`."""

    #: Whether attention gathers e too (Eq. 7): the e~ of `contextualize` is A e, else e itself.
    gathers = False
    #: Of `clamped`.
    clamp = 0.0

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        scale = q.shape[-1] ** -0.5  # whatever the width of a query that position has turned
        q, k = state.turned(q), state.turned(k)
        carried = state if self.gathers else ()
        heads, *parts = self.attention(q, k, (v, *carried), seqs, scale=scale)
        mixed = type(state)(*parts) if self.gathers else state
        return heads, clamped(self.contextualize(heads, mixed, state), self.clamp)

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        """The e of the next block, from heads [B, T, H, K] and mixed, the e~ of Eq. 8."""
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
        """The entries of G, row by row, in this order: [B, T, H, len(order)]."""
        gate = F.silu(self.psi(heads))
        # W2 diag(g) W1 is linear in g: one small product gives the matrix G of each head.
        matrices = (self.w2[:, None] * self.w1.T[None]).flatten(0, 1)  # [L L, W]
        return F.linear(gate, matrices[constant(order, gate, torch.int64)])

    def products(self, rows: int, known: bool) -> Iterable[MatMul]:
        """psi, and the entries of G, each once."""
        head_dim, width = self.psi.in_features, self.psi.out_features
        yield MatMul(rows * head_dim * width)
        yield MatMul(rows * self.mixes**2 * width)
