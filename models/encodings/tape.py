"""TAPE: contextualized equivariant positional encoding, as the paper's equations say.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies, L = D = 2, W width of psi.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.backends.backend import Needs
from models.encoding import PositionalLayer, Setting
from models.errors import UsageError
from models.families.contextual import ContextualRotary
from models.families.rotary import Rotation, rotate, swap
from models.hardware import by_hand
from models.products import Extent, Product
from models.sequences import Sequences


class TapeState(NamedTuple):
    """Each frequency's 2x2 matrix e (rows L, columns D) as e^T acts, in the form of `rotate`:
    direct [B or 1, T, H or 1, 2F] = (e_11, e_22), swapped = (e_21, e_12), one half each. An element
    of O(2) acts on the columns, one for each frequency."""

    direct: Tensor
    swapped: Tensor

    @classmethod
    def of(cls, e: Tensor) -> "TapeState":
        """From e [..., L, 2F], its columns as halves of the last axis."""
        (a, b), (c, d) = (row.chunk(2, -1) for row in e.unbind(-2))
        return cls(torch.cat((a, d), -1), torch.cat((c, b), -1))

    @property
    def e(self) -> Tensor:
        """e [..., L, 2F], its columns (D) as halves of the last axis."""
        (a, d), (c, b) = self.direct.chunk(2, -1), self.swapped.chunk(2, -1)
        return torch.stack((torch.cat((a, b), -1), torch.cat((c, d), -1)), -2)


def added(state: TapeState, keep: Tensor, carry: Tensor, mixed: TapeState) -> TapeState:
    """`state` with `mixed` added, whose rows G mixes: keep = (G_11, G_22), carry = (G_12, G_21),
    each [B, T, H, 2F]. In the type of `state`."""
    if by_hand(keep):
        return TapeState(*_Added.apply(*state, keep, carry, *mixed))  # type: ignore[no-untyped-call]
    keep, carry, direct, swapped = (x.to(state.direct.dtype) for x in (keep, carry, *mixed))
    return TapeState(
        state.direct + keep * direct + carry * swapped,
        state.swapped + swap(carry) * direct + swap(keep) * swapped,
    )


class _Added(torch.autograd.Function):
    """The same for a CPU, where memory is what costs: what is stored is what came in, in its own
    type, and every sum is taken in place."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        first, second, *others = inputs
        ctx.save_for_backward(*others)
        ctx.shape = first.shape
        keep, carry, direct, swapped = (x.to(first.dtype) for x in others)
        return (
            torch.addcmul(first, keep, direct).addcmul_(carry, swapped),
            torch.addcmul(second, swap(carry), direct).addcmul_(swap(keep), swapped),
        )

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        types = [x.dtype for x in ctx.saved_tensors]
        keep, carry, direct, swapped = (x.to(first.dtype) for x in ctx.saved_tensors)
        gradients = (
            (first * direct).add_(swap(second * swapped)),
            (first * swapped).add_(swap(second * direct)),
            (first * keep).addcmul_(second, swap(carry)),
            (first * carry).addcmul_(second, swap(keep)),
        )
        return (
            first.sum_to_size(ctx.shape),
            second.sum_to_size(ctx.shape),
            *(x.to(dtype) for x, dtype in zip(gradients, types, strict=True)),
        )


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
        by = Rotation(*state)
        q, k = rotate(q, by), rotate(k, by)
        if not self.contextual:
            (heads,) = self.attention(q, k, (v,), seqs)
            return heads, state
        heads, *mixed = self.attention(q, k, (v, *state), seqs)
        return heads, self.contextualize(heads, TapeState(*mixed), state)

    def contextualize(self, heads: Tensor, mixed: TapeState, state: TapeState) -> TapeState:
        """e + W2 diag(psi(heads)) W1 mixed (Eq. 8 and the block's residual).

        heads [B, T, H, K]; mixed is A e (Eq. 7).
        """
        gate = F.silu(self.psi(heads))
        # W2 diag(g) W1 is linear in g: one small product gives the 2x2 matrix G of each head.
        matrices = (self.w2[:, None] * self.w1.T[None]).flatten(0, 1)  # [L L, W]
        half = state.direct.shape[-1] // 2
        # It mixes rows of e, so both parts of the state: (G_11, G_22) keeps a part in its place,
        # (G_12, G_21) carries it over.
        order = [0] * half + [3] * half + [1] * half + [2] * half
        keep, carry = F.linear(gate, matrices[order]).chunk(2, -1)
        return added(state, keep, carry, mixed)


class TAPE(ContextualRotary):
    """Rotations that each layer rewrites by what its attention gathers.

    Every token, head and frequency has a matrix e in R^{2x2}, at first the rotation of RoPE, and
    q~ = e^T q, k~ = e^T k, so that the logit is sum_f q^T (e_t e_i^T) k (Eq. 6; the head is m).
    The same attention map gathers e~ = A e (Eq. 7), and e <- e + W2 diag(psi(x~)) W1 e~ (Eq. 8
    with the block's residual), where x~ is the head's attention output before the output
    projection and psi = SiLU(linear) of `width` (the paper's B'). W1, W2, psi are shared by heads
    and frequencies; W2 = 0 at first, so the model starts as RoPE exactly.

    `start` is what e is at first: `rope` (default), `fourier`, the rotations of random Fourier
    features, or `learned`, a table of 2x2 matrices, which loses shifts, lengths beyond its rows and
    extrapolations (ContextualRotary says how each is drawn and what it keeps). The paper's text
    names all three and gives numbers for RoPE alone.

    Invariant under an element of O(2) of its own for each frequency, hence under shifts. Where
    the paper's text is silent or contradicts itself: e e^T where it prints e^T e (only that is
    invariant); one softmax a head; no norm on e; the last layer updates nothing.
    """

    kind = "rotary, contextual"
    paper = "Zhu et al. 2025, arXiv 2501.00712"
    needs = Needs(values=3)

    def __init__(
        self,
        setting: Setting,
        *,
        width: int = 48,
        start: Literal["rope", "fourier", "learned"] = "rope",
    ) -> None:
        if width < 1:
            raise UsageError(f"tape: width must be 1 or more, not {width}")
        self.width = width
        super().__init__(setting)
        self.state_shape = (2, setting.head_dim)
        self.set_first(start)

    def layer(self, i: int) -> PositionalLayer:
        return TapeLayer(self.setting.head_dim, self.width, i < self.setting.num_layers - 1)

    def products(self, extent: Extent) -> Iterable[Product]:
        """Of each layer but the last: A e of two rows, psi, and the 2x2 matrices."""
        heads, width = self.setting.num_heads, self.setting.head_dim
        for i in range(self.setting.num_layers - 1):
            # The first e is no function of any parameter, but for a learned table.
            known = not i and self.first != "learned"
            yield Product(extent.pairs * heads * 2 * width, gradients=1 if known else 2)
            yield Product(extent.tokens * heads * width * self.width)
            # Four numbers a head, laid beside each half of both parts of the state.
            spread = extent.tokens * heads * 2 * width * self.width
            yield Product(spread, needed=extent.tokens * heads * 4 * self.width)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> TapeState:
        if self.first == "learned":
            e = TapeState.of(self.rows(index, seqs, x.dtype)[:, :, None])
            return TapeState(*self.for_heads(Rotation(*e)))
        # The rotation by +theta t is the transpose of the paper's matrix.
        return TapeState(*self.first_rotation(x, index, seqs))
