"""Rotary encodings whose state travels between layers: where it starts, and what both forms of
TAPE do to it alike.

Legend: B batch, T tokens, H heads, F frequencies.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tape_arith.models.cpu_kernels import swap_halves
from tape_arith.models.encoding import INITIAL_STD, State
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.sequences import Sequences, random_words


def frequency_norms(state: tuple[Tensor, ...]) -> Tensor:
    """Compute the norm of each frequency over the tensors [..., 2F]: float32 [..., F]."""
    squares = sum(part.float().square() for part in state)
    assert isinstance(squares, Tensor)
    return squares.unflatten(-1, (2, -1)).sum(-2).sqrt()


# The default of `width`, which constructors write out: options are read without importing.
DEFAULT_WIDTH = 48


def check_options(name: str, width: int, context: str, clamp: float) -> None:
    """Raises UsageError if an option of encoding `name` is out of range or would do nothing."""
    if width < 1:
        raise UsageError(f"{name}: width must be 1 or more, not {width}")
    if context == "no-mlp" and width != DEFAULT_WIDTH:
        raise UsageError(f"{name}: width={width} does nothing with context=no-mlp: leave it out")
    if clamp < 0:
        raise UsageError(f"{name}: clamp must be above 0, or 0 for none, not {clamp:g}")


def clamp_norm(state: State, clamp: float, copies: int = 1) -> State:
    """Divide e by max(1, ||e||_F / clamp), by token, head and frequency (0: e itself).

    ||e||_F is a number that no orthogonal map of the columns of e changes, so that equivariance
    stays. The parts of a state, each [B or 1, T, H or 1, 2F], hold every number of e, `copies`
    times fewer than there are of it.
    """
    if not clamp:
        return state
    squares = sum(part.square() for part in state)
    # The root comes after the maximum: its slope at e = 0 is infinite.
    excess = (squares + swap_halves(squares)).mul(copies / clamp**2).clamp_min(1).sqrt()
    return type(state)(*(part / excess for part in state))


def add_share(state: State, s: Tensor, mixed: State) -> State:
    """Compute e + s_h (A e), in the type of e: s [H], mixed = A e."""
    parts = zip(state, mixed, strict=True)
    return type(state)(*(e + s[:, None] * gathered.to(e.dtype) for e, gathered in parts))


class ContextualRotary(Rotary):
    """Base: the initial state is RoPE's, random Fourier features, or a learned table.

    - `rope`: the rotation of the index by theta_f = 10000^(-f/F).
    - `fourier`: the same by frequencies drawn once from |N(0, 1)| radians a token, when the
      encoding is made (random Fourier features of the Gaussian kernel exp(-distance^2 / 2), a pair
      of cos and sin each). What is kept, and moves with a checkpoint, is the key of the draw: an
      integer, which no change of type rounds.
    - `learned`: row `index` of a table of L1 states, shared by heads; at first the identity, which
      turns nothing, plus N(0, 0.02). No weight decay. (Unrelated matrices from N(0, 1/2) were tried
      at first: they hide from each token the content of all others, and tape had not fit mini
      after 1,000 steps, 39 % in distribution; from here it has, 99.8. The paper is silent.)

    All three look at the index alone, so causality stays, and the layers stay equivariant: turn
    the whole table and all states turn alike while the logits stay. A shift of all indices turns
    the first two by an angle a frequency, which the layers cannot see; rows of a table are
    unrelated, so learned loses that, and with it every index beyond L0 (untrained; past the table
    an error) and any extrapolation.
    """

    no_decay = ("table",)
    #: Shape of one state in a table.
    state_shape: tuple[int, ...]

    def set_first(self, first: str) -> None:
        """Start from `first`; called once the constructor of the base has run."""
        self.first = first
        if first == "fourier":
            self.register_buffer("fourier_key", torch.randint(2**62, (1,)))
        if first == "learned":
            entries = torch.randn(self.setting.max_length, *self.state_shape) * INITIAL_STD
            # Its rows, or z = 1: columns are halves of the last axis.
            identity = torch.eye(2).repeat_interleave(self.state_shape[-1] // 2, -1)
            rows = self.state_shape[0] if len(self.state_shape) > 1 else 1
            self.table = nn.Parameter(entries + identity[:rows].reshape(self.state_shape))

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

    def rows(self, index: Tensor, seqs: Sequences, dtype: torch.dtype) -> Tensor:
        """Look up the table's states, [B or 1, T, *shape], for a model of type `dtype`."""
        longest = seqs.tokens.shape[1] if seqs.starts is None else seqs.longest
        if longest + seqs.offset > len(self.table):
            raise UsageError(
                f"start=learned has a table of {len(self.table)} states, too short for index "
                f"{longest + seqs.offset - 1}; take start=rope, which has no end"
            )
        return self.table.to(torch.promote_types(torch.float32, dtype))[index]

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        """`norm`: the Frobenius norm of e a frequency, sqrt(2) where e is a rotation; `moved`: the
        norm of its change since the start, over the norm that it had there."""
        change = type(state)(*(now - then for now, then in zip(state, first, strict=True)))
        moved = frequency_norms(change) / frequency_norms(first)
        return {"norm": frequency_norms(state).mean((-2, -1)), "moved": moved.mean((-2, -1))}

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        """Let shares s (see `add_share`) learn H times as fast.

        The authors' code has an H x H matrix in their place of which the row sums act, and under
        Adam those move H times as fast as one entry.
        """
        faster = {"lr_factor": float(self.setting.num_heads)}
        shares = {id(p) for name, p in self.named_parameters() if name.endswith(".s")}
        for parameter, options in super().parameter_groups():
            yield parameter, {**options, **(faster if id(parameter) in shares else {})}
