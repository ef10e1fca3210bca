"""TAPE: contextualized equivariant positional encoding, as the paper's equations say.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies, L = D = 2, W width of psi.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.cpu_kernels import (
    add_mixed_rows_on_cpu,
    repeat_for_heads,
    use_custom_backward,
)
from tape_arith.models.encoding import MatMul, PositionalLayer, Setting, Workload
from tape_arith.models.errors import UsageError
from tape_arith.models.families.contextual import ContextualRotary, check_options
from tape_arith.models.families.rotary import Rotation, rotate, rotation
from tape_arith.models.families.tape_layers import (
    ContextualLayer,
    NonEquivariantLayer,
    ReadOut,
    ShareLayer,
    VectorLayer,
    VectorState,
)
from tape_arith.models.sequences import Sequences


class TapeState(NamedTuple):
    """Each frequency's 2x2 matrix e (rows L, columns D) as e^T acts, in the form of `rotate`.

    diagonal [B or 1, T, H or 1, 2F] = (e_11, e_22), cross = (e_21, e_12), one half each. Elements
    of O(2), one for each frequency, act on the columns.
    """

    diagonal: Tensor
    cross: Tensor

    @classmethod
    def from_angles(cls, cos: Tensor, sin: Tensor) -> "TapeState":
        """Make the rotation by +theta t, which is the transpose of the paper's matrix."""
        return cls(*rotation(cos, sin))

    @classmethod
    def from_matrix(cls, e: Tensor) -> "TapeState":
        """Convert e [..., L, 2F], its columns as halves of the last axis."""
        (a, b), (c, d) = (row.chunk(2, -1) for row in e.unbind(-2))
        return cls(torch.cat((a, d), -1), torch.cat((c, b), -1))

    @property
    def e(self) -> Tensor:
        """e [..., L, 2F], its columns (D) as halves of the last axis."""
        (a, d), (c, b) = self.diagonal.chunk(2, -1), self.cross.chunk(2, -1)
        return torch.stack((torch.cat((a, b), -1), torch.cat((c, d), -1)), -2)

    def apply(self, x: Tensor) -> Tensor:
        """Multiply a query or key x [B, T, H, 2F] by e^T, frequency by frequency."""
        return rotate(x, Rotation(*self))


def add_mixed_rows(state: TapeState, entries: Tensor, mixed: TapeState) -> TapeState:
    """Compute e + G mixed in the type of e; entries = (G_11, G_22, G_12, G_21), [B, T, H, 4].

    For a GPU: a fused block reads a head's four numbers where it needs them and writes no wider
    tensor of them.
    """
    half = state.diagonal.shape[-1] // 2
    entries, diagonal, cross = (x.to(state.diagonal.dtype) for x in (entries, *mixed))

    def halves(first: int, second: int) -> Tensor:
        """Lay one entry beside the first half of the last axis and one beside the second."""
        both = torch.stack((entries[..., first], entries[..., second]), -1)
        return both[..., None].expand(*both.shape, half).flatten(-2)

    return TapeState(
        state.diagonal + halves(0, 1) * diagonal + halves(2, 3) * cross,
        state.cross + halves(3, 2) * diagonal + halves(1, 0) * cross,
    )


class TapeLayer(ReadOut):
    """Eq. 8 as it stands: W1 and W2 act on the rows of e."""

    mixes = 2

    def contextualize(self, heads: Tensor, mixed: TapeState, state: TapeState) -> TapeState:
        """Compute e + W2 diag(psi(heads)) W1 mixed (Eq. 8 and the block's residual).

        heads [B, T, H, K]; mixed is A e (Eq. 7).
        """
        # G mixes rows of e, so both parts of the state: (G_11, G_22) keeps a part in its place,
        # (G_12, G_21) carries it over.
        order = [0, 3, 1, 2]
        if not use_custom_backward(heads):
            return add_mixed_rows(state, self.entries(heads, order), mixed)
        # The product itself lays the entries out, which is cheaper than repeating them.
        half = state.diagonal.shape[-1] // 2
        wide = self.entries(heads, [entry for entry in order for _ in range(half)])
        keep, carry = wide.chunk(2, -1)
        return TapeState(*add_mixed_rows_on_cpu(state, (keep, carry), mixed))

    def products(self, rows: int, known: bool) -> Iterable[MatMul]:
        """psi, and the four entries of G, laid beside each half of both parts of the state (which
        compiled blocks and a GPU do without)."""
        psi, entries = super().products(rows, known)
        yield psi
        half = self.psi.in_features // 2
        yield MatMul(entries.multiply_adds * half, needed=entries.multiply_adds)


class Form(NamedTuple):
    """What e is, what rewrites it, how many rows it has (L), and how many times as wide as values
    queries and keys are once e has turned them."""

    state: type[TapeState] | type[VectorState]
    read_out: type[ReadOut]
    rows: int
    query: int


FORMS = {
    "tensor": Form(TapeState, TapeLayer, rows=2, query=1),
    "non-equivariant": Form(TapeState, NonEquivariantLayer, rows=2, query=1),
    "vector": Form(VectorState, VectorLayer, rows=1, query=2),
}


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

    What the paper takes away in Table 6, by its own words, and the clamp (models/families has the
    layers):
    - `context=no-attention`: attention does not contextualize, e~ = e: e <- e + G e, where
      G = W2 diag(psi(x~)) W1. `context=no-mlp`: the MLP does not, e <- e + s_h A e, one number s a
      head and layer, zero at first, learned at H times the rate (as in tape-heads); psi, W1 and
      W2, and with them `width`, are gone. Both start as RoPE exactly and keep the symmetry.
    - `form=non-equivariant` ("w/o rotation equivariance"): W1 [width, 4] and W2 [4, width] act on
      vec(e) in R^4 and so mix its columns. Starts as RoPE, then sees absolute positions: the
      control. Default: `tensor`, the matrix that Eq. 8 mixes by rows.
    - `form=vector` (instead of "tensorial"): L = 1, D = 4, e = (cos, sin, cos, sin) / sqrt(2) at
      first, and the logit is sum_f (q_f . k_f)(e_t . e_i). It starts as sum_f (q_f . k_f)
      cos(theta_f (t - i)), RoPE without its sine: not RoPE. W1 [width, 1], W2 [1, width]; G is a
      number, so that e stays a vector twice, kept once here (`VectorState`). Keeps the symmetry.
    - `clamp=c` (off: 0): after each update e <- e / max(1, ||e||_F / c), which keeps the symmetry;
      a rotation's norm is sqrt(2), a vector's 1 at first. Not of the paper: nothing there bounds e.
    - `width`: Table 7 sweeps B'; here 4, 12, 24, 48 and 96 are worth a row.
    The numbers of these tables are missing from the text at hand. The authors' code has ablations
    of its form that mixes heads alone, and other ones: its non-equivariant ones mix heads,
    channels and so frequencies, alike for cosines and sines (`adawoeq`) or each by weights of its
    own (`adatensor`); its vector (`adavector`) mixes the channels of a head, which breaks
    invariance under shifts too.
    """

    kind = "rotary, contextual"
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
    ) -> None:
        check_options("tape", width, context, clamp)
        if context == "no-mlp" and form == "non-equivariant":
            raise UsageError(
                "tape: form=non-equivariant changes W1 and W2, and context=no-mlp has none: "
                "take one of the two"
            )
        self.width, self.context, self.clamp = width, context, clamp
        self.form = FORMS[form]
        super().__init__(setting)
        self.state_shape = (self.form.rows, setting.head_dim)
        self.set_first(start)
        gathered = 0 if context == "no-attention" else len(self.form.state._fields)
        # Of this one, not of the class: options change it.
        vars(self)["needs"] = Needs(values=1 + gathered, query=self.form.query)

    def layer(self, i: int) -> PositionalLayer:
        """Choose the update of a block's e by context and form."""
        if i == self.setting.num_layers - 1:
            return ContextualLayer()
        layer = (
            ShareLayer(self.setting.num_heads)
            if self.context == "no-mlp"
            else self.form.read_out(self.setting.head_dim, self.width)
        )
        layer.gathers, layer.clamp = self.context != "no-attention", self.clamp
        return layer

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """Scores of wider queries, if so, in each layer; in each but the last, A e of all parts of
        e that are gathered, and what its e takes."""
        heads = self.setting.num_heads
        pairs = extent.pairs * heads * self.setting.head_dim
        yield MatMul(self.setting.num_layers * pairs * (self.needs.query - 1))
        for i, layer in enumerate(self.layers[:-1]):
            assert isinstance(layer, ContextualLayer)
            # The first e is no function of any parameter, but for a learned table.
            known = not i and self.first != "learned"
            yield MatMul(pairs * (self.needs.values - 1), gradients=1 if known else 2)
            yield from layer.products(extent.tokens * heads, known and not layer.gathers)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> TapeState | VectorState:
        if self.first == "learned":
            e = self.form.state.from_matrix(self.rows(index, seqs, x.dtype)[:, :, None])
        else:
            e = self.form.state.from_angles(*self.cos_sin(index, seqs, x.dtype))
        return repeat_for_heads(e, self.setting.num_heads)
