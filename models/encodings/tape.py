"""TAPE: contextualized equivariant positional encoding, as the paper's equations say.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies, L = D = 2, W width of psi.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import attention
from models.encoding import PositionalLayer, Setting
from models.errors import UsageError
from models.families.rotary import Rotary
from models.sequences import Sequences


class TapeState(NamedTuple):
    """e [B or 1, T, H or 1, L, 2F]: each frequency's 2x2 matrix, row l, its two columns (D) as
    halves of the last axis. An element of O(2) acts on the columns, one for each frequency."""

    e: Tensor


def apply(rows: Sequence[Tensor], x: Tensor) -> Tensor:
    """e^T x for each frequency: x [B, T, H, K], its halves the two coordinates (L) of each
    frequency; rows of e [B or 1, T, H or 1, 2F]. Two products over whole tensors, in their type."""
    first, second = x.to(rows[0].dtype).chunk(2, -1)
    first, second = torch.cat((first, first), -1), torch.cat((second, second), -1)
    return (first * rows[0] + second * rows[1]).to(x.dtype)


class TapeLayer(PositionalLayer):
    """Eq. 6 to 8. The last layer's state has no reader, so `contextual` is False there."""

    def __init__(self, head_dim: int, width: int, contextual: bool) -> None:
        super().__init__()
        self.contextual = contextual
        if contextual:
            self.psi = nn.Linear(head_dim, width)
            self.w1 = nn.Parameter(torch.empty(width, 2).uniform_(-(2**-0.5), 2**-0.5))
            self.w2 = nn.Parameter(torch.zeros(2, width))

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: TapeState, seqs: Sequences
    ) -> tuple[Tensor, TapeState]:
        rows = state.e.unbind(-2)
        q, k = apply(rows, q), apply(rows, k)
        if not self.contextual:
            (heads,) = attention(q, k, (v,))
            return heads, state
        heads, *mixed = attention(q, k, (v, *rows))
        return heads, TapeState(self.contextualize(heads, mixed, rows))

    def contextualize(
        self, heads: Tensor, mixed: Sequence[Tensor], rows: Sequence[Tensor]
    ) -> Tensor:
        """e + W2 diag(psi(heads)) W1 mixed (Eq. 8 and the block's residual): [B, T, H, L, 2F].

        heads [B, T, H, K]; mixed are the two rows of A e (Eq. 7), rows those of e.
        """
        gate = F.silu(self.psi(heads))
        # W2 diag(g) W1 is linear in g: one small product gives the 2x2 matrix of each head.
        matrices = (self.w2[:, None] * self.w1.T[None]).flatten(0, 1)  # [L L, W]
        g = F.linear(gate, matrices).to(rows[0].dtype)[..., None].unbind(-2)
        first, second = (row.to(rows[0].dtype) for row in mixed)
        return torch.stack(
            (
                rows[0] + g[0] * first + g[1] * second,
                rows[1] + g[2] * first + g[3] * second,
            ),
            -2,
        )


class TAPE(Rotary):
    """Rotations that each layer rewrites by what its attention gathers.

    Every token, head and frequency has a matrix e in R^{2x2}, at first the rotation of RoPE, and
    q~ = e^T q, k~ = e^T k, so that the logit is sum_f q^T (e_t e_i^T) k (Eq. 6; the head is m).
    The same attention map gathers e~ = A e (Eq. 7), and e <- e + W2 diag(psi(x~)) W1 e~ (Eq. 8
    with the block's residual), where x~ is the head's attention output before the output
    projection and psi = SiLU(linear) of `width` (the paper's B'). W1, W2, psi are shared by heads
    and frequencies; W2 = 0 at first, so the model starts as RoPE exactly.

    Invariant under an element of O(2) of its own for each frequency, hence under shifts. Where
    the paper's text is silent or contradicts itself: e e^T where it prints e^T e (only that is
    invariant); one softmax a head; no norm on e; the last layer updates nothing.
    """

    kind = "rotary, contextual"
    paper = "Zhu et al. 2025, arXiv 2501.00712"

    def __init__(self, setting: Setting, *, width: int = 48) -> None:
        if width < 1:
            raise UsageError(f"tape: width must be 1 or more, not {width}")
        self.width = width
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return TapeLayer(self.setting.head_dim, self.width, i < self.setting.num_layers - 1)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> TapeState:
        cos, sin = self.cos_sin(index, seqs, x.dtype)
        # [[cos, sin], [-sin, cos]]: the transpose of the paper's matrix, so that e^T turns by
        # +theta t, as RoPE does.
        return TapeState(torch.stack((torch.cat((cos, sin), -1), torch.cat((-sin, cos), -1)), -2))
