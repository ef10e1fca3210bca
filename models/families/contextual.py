"""Share code between both forms of TAPE: rotary encodings whose state e each layer updates.

e~ is A e, the state that the attention map A gathers, or e itself if nothing is gathered.
"""

import math
from abc import ABC, abstractmethod
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
    """Divide e by max(1, ||e||_F / clamp) per token, head and frequency (clamp 0: keep e).

    Orthogonal maps of e's columns keep the norm, so equivariance holds. e contains each number of
    the state `copies` times.
    """
    if not clamp:
        return state
    squares = sum(part.square() for part in state)
    # The root follows the maximum, because its slope at e = 0 is infinite.
    excess = (squares + swap_halves(squares)).mul(copies / clamp**2).clamp_min(1).sqrt()
    return type(state)(*(part / excess for part in state))


class ContextualLayer(PositionalLayer):
    """Attention with e applied to q and k. The last layer does only this, as no layer reads its e.

    In a looped decoder the last layer updates e for the next loop, except in the last loop.
    """

    #: Whether attention gathers e too.
    gathers = False
    #: Arguments of `clamp_norm`.
    clamp, copies = 0.0, 1

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        scale = q.shape[-1] ** -0.5  # `apply` may widen q and k
        q, k = state.apply(q, k)
        gathers = self.gathers and not seqs.last
        heads, *parts = self.attention(q, k, (v, *(state if gathers else ())), seqs, scale=scale)
        if seqs.last:
            return heads, state
        mixed = type(state)(*parts) if gathers else state
        return heads, self.contextualize(heads, mixed, state)

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        """Compute e after attention from the attention output heads [B, T, H, K] and mixed = e~."""
        return state

    def update(self, mlp_out: Tensor, state: State, seqs: Sequences) -> State:
        return clamp_norm(state, self.clamp, self.copies)

    def products(self, tokens: int, num_heads: int, known: bool) -> Iterable[MatMul]:
        """List the matrix products of the update; `known` says that e~ depends on no parameter."""
        return ()


def add_share(state: State, s: Tensor, mixed: State) -> State:
    """Compute e + s_h e~ in the type of e: s [H], mixed = e~."""
    parts = zip(state, mixed, strict=True)
    return type(state)(*(e + s[:, None] * more.to(e.dtype) for e, more in parts))


class ShareLayer(ContextualLayer):
    """e <- e + s_h e~, with s = 0 at first to start as RoPE, which e + e~ would not."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.s = nn.Parameter(torch.zeros(num_heads))

    def contextualize(self, heads: Tensor, mixed: State, state: State) -> State:
        return add_share(state, self.s, mixed)


class ContextualRotary(Rotary, ABC):
    """Base: the option `start` chooses the first e, `context` its updates.

    With `full`, attention gathers e and the block's activations update it; with `no-attention`
    nothing is gathered; with `no-mlp` a share of the gathered e~ is added, as in `ShareLayer`.

    - `rope`: the rotation of the index by theta_f = base^(-f/F).
    - `fourier`: the same with frequencies from |N(0, 1)| radians per token (random Fourier features
      of exp(-distance^2 / 2)). A checkpoint holds the draw's key, an integer that no change of type
      rounds.
    - `learned`: row `index` of a table of L1 states, shared by heads, at first the identity plus
      N(0, 0.02), without weight decay (tape then fits 99.8 % of mini in 1,000 steps, but 39 % from
      unrelated N(0, 1/2)). It loses invariance under shifts and extrapolations; indices beyond L0
      are untrained, and beyond L1 an error.
    """

    kind = "rotary, contextual"
    no_decay = ("table",)
    #: A NamedTuple with `from_angles`, `from_matrix` and `apply`.
    state_type: Any
    #: Shape of one state of the table, without the last axis.
    leading_shape: tuple[int, ...]
    #: Width of queries after `apply`, as a multiple of values'.
    query = 1
    #: How often e contains each number of the state.
    copies = 1

    def __init__(
        self,
        setting: Setting,
        name: str,
        *,
        width: int,
        start: str,
        context: str,
        clamp: float,
        base: float,
    ) -> None:
        """Build the encoding with this `name` on the command line."""
        check_least(name, 1, width=width)
        defaults = type(self).__init__.__kwdefaults__ or {}
        if context == "no-mlp" and width != defaults.get("width", width):
            raise UsageError(
                f"{name}: width={width} does nothing with context=no-mlp: leave it out"
            )
        if start != "rope" and base != defaults.get("base", base):
            raise UsageError(f"{name}: base={base:g} does nothing with start={start}: leave it out")
        if clamp < 0:
            raise UsageError(f"{name}: clamp must be above 0, or 0 for none, not {clamp:g}")
        self.width, self.start_option, self.context, self.clamp = width, start, context, clamp
        super().__init__(setting, base=base)
        if start == "fourier":
            self.register_buffer("fourier_key", torch.randint(2**62, (1,)))
        if start == "learned":
            self.computes_with_index = False
            shape = (*self.leading_shape, setting.head_dim)
            entries = torch.randn(setting.max_length, *shape) * INITIAL_STD
            # Halves of the last axis are e's columns.
            identity = torch.eye(2).repeat_interleave(setting.head_dim // 2, -1)
            self.table = nn.Parameter(
                entries + identity[: math.prod(self.leading_shape)].reshape(shape)
            )
        gathered = 0 if context == "no-attention" else len(self.state_type._fields)
        self.needs = Needs(values=1 + gathered, query=self.query)

    def layer(self, i: int) -> PositionalLayer:
        if i == self.setting.applied_layers - 1:
            return ContextualLayer()
        shares = self.context == "no-mlp"
        layer = ShareLayer(self.setting.num_heads) if shares else self.updating_layer()
        layer.gathers = self.context != "no-attention"
        layer.clamp, layer.copies = self.clamp, self.copies
        return layer

    @abstractmethod
    def updating_layer(self) -> ContextualLayer:
        """Build a layer whose activations update e."""

    def frequencies(self) -> Tensor:
        """Return the frequencies of `rope` or `fourier`; a learned start has none."""
        if self.start_option == "rope":
            return super().frequencies()
        if self.start_option == "learned":
            return torch.zeros(0, dtype=torch.float64)
        assert isinstance(self.fourier_key, Tensor)
        count = self.setting.head_dim // 2
        uniform = (random_words(self.fourier_key, 2 * count)[0].to(torch.float64) + 0.5) / 2**32
        size, turn = uniform.chunk(2)
        normal = (-2 * size.log()).sqrt() * (2 * math.pi * turn).cos()
        return normal.abs().sort(descending=True).values

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        if self.start_option != "learned":
            return self.state_type.from_angles(*self.cos_sin(index, seqs, x.dtype))
        if (end := seqs.width + seqs.offset) > len(self.table):
            raise UsageError(
                f"start=learned has a table of {len(self.table)} states, too short for index "
                f"{end - 1}; take start=rope, which has no end"
            )
        table = self.table.to(torch.promote_types(torch.float32, x.dtype))
        return self.state_type.from_matrix(table[index][:, :, None])

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List wider scores per applied layer; A e and the update for all but the last."""
        heads = self.setting.num_heads
        pairs = extent.pairs * heads * self.setting.head_dim
        applied = self.setting.applied_layers
        yield MatMul(applied * pairs * (self.query - 1))
        for i in range(applied - 1):
            layer = self.layers[i % len(self.layers)]
            assert isinstance(layer, ContextualLayer)
            # The first e depends on no parameter unless a table is learned.
            known = not i and self.start_option != "learned"
            yield MatMul(pairs * (self.needs.values - 1), gradients=1 if known else 2)
            yield from layer.products(extent.tokens, heads, known and not layer.gathers)

    def trained_reach(self) -> dict[str, int]:
        return {"tokens": self.setting.trained_length} if self.start_option == "learned" else {}

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        """Measure `norm`, ||e||_F, and `moved`, ||e - first|| / ||first||, mean over frequencies.

        `norm` is sqrt(2) if e is a rotation.
        """
        change = type(state)(*(now - then for now, then in zip(state, first, strict=True)))
        moved = frequency_norms(change) / frequency_norms(first)
        norm = self.copies**0.5 * frequency_norms(state).mean((-2, -1))
        return {"norm": norm, "moved": moved.mean((-2, -1))}

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        """Give each parameter `s` H times the learning rate.

        The authors' code has an H x H matrix instead, whose row sums alone act; under Adam a row
        sum moves H times as fast as an entry.
        """
        shares = {id(p) for name, p in self.named_parameters() if name.endswith(".s")}
        for parameter, options in super().parameter_groups():
            if id(parameter) in shares:
                options = {**options, "lr_factor": float(self.setting.num_heads)}
            yield parameter, options
