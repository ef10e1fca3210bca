"""Rotary encodings whose state e each layer rewrites: what both forms of TAPE share.

e~ is A e, the state that attention gathers, or e itself if it gathers none.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tape_arith.models.attention import Needs
from tape_arith.models.cpu_kernels import swap_halves
from tape_arith.models.encoding import (
    INITIAL_STD,
    MatMul,
    PositionalLayer,
    Setting,
    State,
    Workload,
    check_least,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences, random_words


def frequency_norms(state: State) -> Tensor:
    """Compute the norm of each frequency over the parts [..., 2F] of a state: float32 [..., F]."""
    squares = sum(part.float().square() for part in state)
    return squares.unflatten(-1, (2, -1)).sum(-2).sqrt()


def clamp_norm(state: State, clamp: float, copies: int = 1) -> State:
    """Divide e by max(1, ||e||_F / clamp), by token, head and frequency (0: e itself).

    No orthogonal map of e's columns changes the norm, so equivariance stays. `copies`: how often
    each number of the state stands in e.
    """
    if not clamp:
        return state
    squares = sum(part.square() for part in state)
    # The root comes after the maximum: its slope at e = 0 is infinite.
    excess = (squares + swap_halves(squares)).mul(copies / clamp**2).clamp_min(1).sqrt()
    return type(state)(*(part / excess for part in state))


class ContextualLayer(PositionalLayer):
    """Attention by e; the last layer does nothing else, since no layer reads its state."""

    #: Whether attention gathers e too.
    gathers = False
    #: The bound of `clamp_norm`, and how often a number stands in e.
    clamp, copies = 0.0, 1

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        scale = q.shape[-1] ** -0.5  # `apply` may widen q and k
        q, k = state.apply(q, k)
        carried = state if self.gathers else ()
        heads, *parts = self.attention(q, k, (v, *carried), seqs, scale=scale)
        mixed = type(state)(*parts) if self.gathers else state
        return heads, self.contextualize(heads, mixed, state)

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        """Compute e after attention from its output, heads [B, T, H, K], and mixed, e~."""
        return state

    def update(self, mlp_out: Tensor, state: State, seqs: Sequences) -> State:
        return clamp_norm(state, self.clamp, self.copies)

    def products(self, tokens: int, num_heads: int, known: bool) -> Iterable[MatMul]:
        """List the products of the update; `known`: e~ is no function of any parameter."""
        return ()


def add_share(state: State, s: Tensor, mixed: State) -> State:
    """Compute e + s_h e~ in the type of e: s [H], mixed = e~."""
    parts = zip(state, mixed, strict=True)
    return type(state)(*(e + s[:, None] * more.to(e.dtype) for e, more in parts))


class ShareLayer(ContextualLayer):
    """e <- e + s_h e~, with s = 0 at first: plain e + e~ would not start as RoPE."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(num_heads))

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        return add_share(state, self.s, mixed)


class ContextualRotary(Rotary):
    """Base: the option `start` says what e is at first, `context` what rewrites it.

    - `rope`: the rotation of the index by theta_f = 10000^(-f/F).
    - `fourier`: the same by frequencies from |N(0, 1)| radians a token (random Fourier features of
      exp(-distance^2 / 2)). A checkpoint holds the key of the draw, an integer that no change of
      type rounds.
    - `learned`: row `index` of a table of L1 states, shared by heads, at first the identity plus
      N(0, 0.02), without weight decay (from unrelated N(0, 1/2) tape fits 39 % of mini in 1,000
      steps, from here 99.8). It loses invariance under shifts, indices beyond L0 (untrained) and
      L1 (an error), and extrapolations.
    """

    no_decay = ("table",)
    #: The state's type, a NamedTuple with `from_angles`, `from_matrix` and `apply`.
    state: Any
    #: Shape of a state in a table, but for its last axis.
    rows: tuple[int, ...]
    #: How many times as wide as values `apply` makes queries.
    query = 1
    #: How often a number of the state stands in e.
    copies = 1

    def __init__(
        self, setting: Setting, *, width: int, start: str, context: str, clamp: float
    ) -> None:
        name = type(self).__name__
        check_least(name, 1, width=width)
        if context == "no-mlp" and width != 48:
            raise UsageError(
                f"{name}: width={width} does nothing with context=no-mlp: leave it out"
            )
        if clamp < 0:
            raise UsageError(f"{name}: clamp must be above 0, or 0 for none, not {clamp:g}")
        self.width, self.first, self.context, self.clamp = width, start, context, clamp
        super().__init__(setting)
        if start == "fourier":
            self.register_buffer("fourier_key", torch.randint(2**62, (1,)))
        if start == "learned":
            shape = (*self.rows, setting.head_dim)
            entries = torch.randn(setting.max_length, *shape) * INITIAL_STD
            # Columns are halves of the last axis.
            identity = torch.eye(2).repeat_interleave(setting.head_dim // 2, -1)
            self.table = nn.Parameter(entries + identity[: math.prod(self.rows)].reshape(shape))
        gathered = 0 if context == "no-attention" else len(self.state._fields)
        # Of the instance, not of the class: options change it.
        vars(self)["needs"] = Needs(values=1 + gathered, query=self.query)

    def layer(self, i: int) -> PositionalLayer:
        if i == self.setting.num_layers - 1:
            return ContextualLayer()
        layer = self.updating_layer()
        layer.gathers = self.context != "no-attention"
        layer.clamp, layer.copies = self.clamp, self.copies
        return layer

    def updating_layer(self) -> ContextualLayer:
        """Build the layer that `context` asks for."""
        raise NotImplementedError

    def frequencies(self) -> Tensor:
        """Return those of `rope` or `fourier`; a learned start has none."""
        if self.first == "rope":
            return super().frequencies()
        if self.first == "learned":
            return torch.zeros(0, dtype=torch.float64)
        assert isinstance(self.fourier_key, Tensor)
        count = self.setting.head_dim // 2
        uniform = (random_words(self.fourier_key, 2 * count)[0].to(torch.float64) + 0.5) / 2**32
        size, turn = uniform.chunk(2)
        normal = (-2 * size.log()).sqrt() * (2 * math.pi * turn).cos()
        return normal.abs().sort(descending=True).values

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        if self.first != "learned":
            return self.state.from_angles(*self.cos_sin(index, seqs, x.dtype))
        if (end := seqs.width + seqs.offset) > len(self.table):
            raise UsageError(
                f"start=learned has a table of {len(self.table)} states, too short for index "
                f"{end - 1}; take start=rope, which has no end"
            )
        table = self.table.to(torch.promote_types(torch.float32, x.dtype))
        return self.state.from_matrix(table[index][:, :, None])

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """Count wider scores in each layer, A e and the update in each but the last."""
        heads = self.setting.num_heads
        pairs = extent.pairs * heads * self.setting.head_dim
        yield MatMul(self.setting.num_layers * pairs * (self.query - 1))
        for i, layer in enumerate(self.layers[:-1]):
            assert isinstance(layer, ContextualLayer)
            # The first e is no function of any parameter, but for a learned table.
            known = not i and self.first != "learned"
            yield MatMul(pairs * (self.needs.values - 1), gradients=1 if known else 2)
            yield from layer.products(extent.tokens, heads, known and not layer.gathers)

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        """Measure ||e||_F by frequency, and how far e moved since the start, over its norm there.

        `norm` is sqrt(2) if e is a rotation.
        """
        change = type(state)(*(now - then for now, then in zip(state, first, strict=True)))
        moved = frequency_norms(change) / frequency_norms(first)
        norm = self.copies**0.5 * frequency_norms(state).mean((-2, -1))
        return {"norm": norm, "moved": moved.mean((-2, -1))}

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        """Let shares s learn H times as fast.

        The authors' code has an H x H matrix in their place of which the row sums act, and under
        Adam those move H times as fast as one entry.
        """
        shares = {id(p) for name, p in self.named_parameters() if name.endswith(".s")}
        for parameter, options in super().parameter_groups():
            if id(parameter) in shares:
                options = {**options, "lr_factor": float(self.setting.num_heads)}
            yield parameter, options
