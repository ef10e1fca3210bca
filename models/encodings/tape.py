"""TAPE: contextualized equivariant positional encoding, by the paper's equations.

L, D: rows and columns of e (2 and 2); W: width of psi. Equation and table numbers are the paper's.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.cpu_kernels import (
    add_mixed_rows_on_cpu,
    repeat_for_heads,
    use_custom_backward,
)
from tape_arith.models.encoding import MatMul, Setting, State, constant
from tape_arith.models.errors import UsageError
from tape_arith.models.families.contextual import ContextualLayer, ContextualRotary
from tape_arith.models.families.rotary import Rotation, rotate, rotation
from tape_arith.models.sequences import Sequences


class TapeState(NamedTuple):
    """Each frequency's 2x2 matrix e, stored as the map e^T in the form of `Rotation`.

    diagonal [B or 1, T, H or 1, 2F] = (e_11, e_22), cross = (e_21, e_12), F numbers each. One
    element of O(2) per frequency acts on the columns of e.
    """

    diagonal: Tensor
    cross: Tensor

    @classmethod
    def from_angles(cls, cos: Tensor, sin: Tensor) -> "TapeState":
        """Build the rotation by +theta t, the transpose of the paper's matrix."""
        return cls(*rotation(cos, sin))

    @classmethod
    def from_matrix(cls, e: Tensor) -> "TapeState":
        """Convert e [..., L, 2F], whose last axis has a half per column."""
        (a, b), (c, d) = (row.chunk(2, -1) for row in e.unbind(-2))
        return cls(torch.cat((a, d), -1), torch.cat((c, b), -1))

    @property
    def e(self) -> Tensor:
        """The matrices e [..., L, 2F], whose last axis has a half per column (D)."""
        (a, d), (c, b) = self.diagonal.chunk(2, -1), self.cross.chunk(2, -1)
        return torch.stack((torch.cat((a, b), -1), torch.cat((c, d), -1)), -2)

    def apply(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply queries and keys [B, T, H, 2F] by e^T, frequency by frequency."""
        return rotate(q, Rotation(*self)), rotate(k, Rotation(*self))


class VectorState(NamedTuple):
    """Each frequency's e as a row of two numbers, L = 1: [B or 1, T, H or 1, 2F], in halves.

    The paper's vector (D = 4) is this row twice, divided by sqrt(2), so that updates, inner
    products and norms agree.
    """

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
        """The rows e [..., L = 1, 2F], whose last axis has a half per column (D)."""
        return self.row[..., None, :]

    def apply(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Take the outer products of queries and keys [B, T, H, 2F] with e: [B, T, H, 4F].

        Query times key is then sum_f (q_f . k_f)(e_t . e_i).
        """
        return self._outer(q), self._outer(k)

    def _outer(self, x: Tensor) -> Tensor:
        wide = x.to(self.row.dtype)
        columns = [column.repeat(1, 1, 1, 2) for column in self.row.chunk(2, -1)]
        return torch.cat([wide * column for column in columns], -1).to(x.dtype)


class ReadOut(ContextualLayer):
    """Base of Eq. 8: G = W2 diag(psi(x~)) W1 acts on e~, psi = SiLU(linear).

    x~ is the head's attention output; W1 is [W, mixes], W2 [mixes, W] and 0 at first.
    """

    #: The number of entries of e~ that G mixes.
    mixes: ClassVar[int]

    def __init__(self, head_dim: int, width: int) -> None:
        super().__init__()
        bound = self.mixes**-0.5
        self.psi = nn.Linear(head_dim, width)
        self.w1 = nn.Parameter(torch.empty(width, self.mixes).uniform_(-bound, bound))
        self.w2 = nn.Parameter(torch.zeros(self.mixes, width))

    def entries(self, heads: Tensor, order: list[int]) -> Tensor:
        """Compute the entries of G with the row-major numbers `order`: [B, T, H, len(order)]."""
        gate = F.silu(self.psi(heads))
        # W2 diag(g) W1 is linear in g: one small product gives the matrix G of each head.
        matrices = (self.w2[:, None] * self.w1.T[None]).flatten(0, 1)  # [mixes^2, W]
        return F.linear(gate, matrices[constant(order, gate, torch.int64)])

    def products(self, tokens: int, num_heads: int, known: bool) -> Iterable[MatMul]:
        """List the products for psi and for the entries of G, each entry once."""
        head_dim, width = self.psi.in_features, self.psi.out_features
        yield MatMul(tokens * num_heads * head_dim * width)
        yield MatMul(tokens * num_heads * self.mixes**2 * width)


class TapeLayer(ReadOut):
    """Eq. 8 of the paper: G mixes the rows of e."""

    mixes = 2

    def contextualize(self, heads: Tensor, mixed: TapeState, state: TapeState) -> TapeState:
        # (G_11, G_22) keep a part of the state in place; (G_12, G_21) carry it to the other part.
        order = [0, 3, 1, 2]
        if not use_custom_backward(heads):
            return _add_mixed_rows(state, self.entries(heads, order), mixed)
        # The product repeats an entry for all frequencies, which is cheaper than copying.
        half = state.diagonal.shape[-1] // 2
        wide = self.entries(heads, [entry for entry in order for _ in range(half)])
        keep, carry = wide.chunk(2, -1)
        return TapeState(*add_mixed_rows_on_cpu(state, (keep, carry), mixed))

    def products(self, tokens: int, num_heads: int, known: bool) -> Iterable[MatMul]:
        """List the entries as often as a CPU repeats them; a GPU needs each once."""
        psi, entries = super().products(tokens, num_heads, known)
        yield psi
        half = self.psi.in_features // 2
        yield MatMul(entries.multiply_adds * half, needed=entries.multiply_adds)


def _add_mixed_rows(state: TapeState, entries: Tensor, mixed: TapeState) -> TapeState:
    """Compute e + G mixed in the type of e; entries = (G_11, G_22, G_12, G_21), [B, T, H, 4].

    Suits a GPU, where a fused block reads a head's four entries and never writes repeated ones.
    """
    half = state.diagonal.shape[-1] // 2
    entries, diagonal, cross = (x.to(state.diagonal.dtype) for x in (entries, *mixed))

    def halves(first: int, second: int) -> Tensor:
        """Repeat one entry over the first half of the last axis, another over the second."""
        both = torch.stack((entries[..., first], entries[..., second]), -1)
        return both[..., None].expand(*both.shape, half).flatten(-2)

    return TapeState(
        state.diagonal + halves(0, 1) * diagonal + halves(2, 3) * cross,
        state.cross + halves(3, 2) * diagonal + halves(1, 0) * cross,
    )


class NonEquivariantLayer(ReadOut):
    """G mixes vec(e) = (e_11, e_12, e_21, e_22), and so the columns, on which rotations act."""

    mixes = 4

    def contextualize(self, heads: Tensor, mixed: TapeState, state: TapeState) -> TapeState:
        matrices = self.entries(heads, list(range(16))).unflatten(-1, (4, 4))
        e = state.e
        vec = mixed.e.unflatten(-1, (2, -1)).flatten(-3, -2)  # [B or 1, T, H, L D, F]
        change = (matrices.to(e.dtype) @ vec.to(e.dtype)).to(e.dtype)  # autocast narrows products
        return TapeState.from_matrix(e + change.unflatten(-2, (2, 2)).flatten(-2))

    def products(self, tokens: int, num_heads: int, known: bool) -> Iterable[MatMul]:
        """List the read-out's products and G vec(e~)."""
        yield from super().products(tokens, num_heads, known)
        numbers = tokens * num_heads * 16 * self.psi.in_features // 2
        yield MatMul(numbers, gradients=1 if known else 2)


class VectorLayer(ReadOut):
    """Eq. 8 at L = 1: G is a number."""

    mixes = 1

    def contextualize(self, heads: Tensor, mixed: VectorState, state: VectorState) -> VectorState:
        (row,), (gathered,) = state, mixed
        return VectorState(row + self.entries(heads, [0]).to(row.dtype) * gathered.to(row.dtype))


READ_OUTS = {"tensor": TapeLayer, "non-equivariant": NonEquivariantLayer, "vector": VectorLayer}


class TAPE(ContextualRotary):
    """Rotations that each layer updates with the rotations that its attention gathers.

    Every token, head and frequency has a matrix e in R^{2x2}, at first the rotation of RoPE, and
    q~ = e^T q, k~ = e^T k, so that the logit is sum_f q^T (e_t e_i^T) k (Eq. 6, where m is the
    head). The same attention map gathers e~ = A e (Eq. 7), and e <- e + W2 diag(psi(x~)) W1 e~
    (Eq. 8 with the block's residual), x~ the head's attention output before the output projection,
    psi = SiLU(linear). Heads and frequencies share W1, W2 and psi; W2 = 0 at first, so the model
    starts exactly as RoPE. It is invariant under a separate element of O(2) per frequency, hence
    under shifts.

    Where the paper is silent or contradicts itself, we use e e^T for its e^T e (only the former is
    invariant), one softmax per head and no norm on e; the last layer updates nothing. The authors'
    code ablates `tape-heads` instead (`adawoeq`, `adatensor`, `adavector`).

    width    width of psi, the paper's B'
    start    e at first: RoPE's rotation ("rope"), one with frequencies from |N(0, 1)| radians per
             token ("fourier"), or a learned table of L1 states ("learned"); see ContextualRotary
    context  "no-attention": e~ = e; "no-mlp": e <- e + s_h A e, one s per head, 0 at first,
             learned at H times the rate; both start as RoPE (Table 6)
    form     "non-equivariant": W1 [width, 4], W2 [4, width] act on vec(e) and mix e's columns, so
             the model sees absolute positions: the control (Table 6, "w/o rotation equivariance");
             "vector" (Table 6, instead of "tensorial"): L = 1, D = 4, e = (cos, sin, cos, sin) /
             sqrt(2) at first, the logit is sum_f (q_f . k_f)(e_t . e_i): RoPE without its sine
    clamp    c (0: none): after each update e <- e / max(1, ||e||_F / c); a rotation's norm is
             sqrt(2), a vector's 1; the paper has no bound on e. It is for many applied layers,
             whose updates multiply: after 16, weights with N(0, 0.4) added give a norm of 7e7,
             which costs float32 two digits. Training needs none: in 500 steps of addition to 3
             digits with `loops=4`, 16 applied layers, the mean norm at the last was 1.9 at most
             (step 100) and 1.6 at the end
    base     of the rotation of `start=rope`, as for `rope`
    """

    paper = "Zhu et al. 2025, arXiv 2501.00712"

    def __init__(
        self,
        setting: Setting,
        *,
        width: int = 48,
        start: Literal["rope", "fourier", "learned"] = "rope",
        context: Literal["full", "no-attention", "no-mlp"] = "full",
        form: Literal["tensor", "non-equivariant", "vector"] = "tensor",
        clamp: float = 0,
        base: float = 10_000.0,
    ) -> None:
        if context == "no-mlp" and form == "non-equivariant":
            raise UsageError(
                "tape: form=non-equivariant changes W1 and W2, and context=no-mlp has none: "
                "take one of the two"
            )
        self.form = form
        is_vector = form == "vector"
        self.state_type = VectorState if is_vector else TapeState
        self.leading_shape = (1,) if is_vector else (2,)
        self.query = 1 + is_vector
        super().__init__(
            setting, "tape", width=width, start=start, context=context, clamp=clamp, base=base
        )

    def updating_layer(self) -> ContextualLayer:
        return READ_OUTS[self.form](self.setting.head_dim, self.width)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return repeat_for_heads(super().start(x, index, seqs), self.setting.num_heads)
