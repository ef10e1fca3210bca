"""Rotate queries and keys by an angle that grows with the index.

Coordinates f and f + F form a pair everywhere: the halves of a head are real and imaginary parts. A
schedule is a list of R frequencies; R may be less than F.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from tape_arith.models.cpu_kernels import (
    repeat_for_heads,
    rotate_on_cpu,
    swap_halves,
    use_custom_backward,
)
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, Setting, State, constant
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


class Rotation(NamedTuple):
    """A linear map of each frequency's two coordinates, each part [B or 1, T, H or 1, 2F].

    It maps x to x * diagonal + swap_halves(x) * cross; a rotation has (cos, cos) and (-sin, sin).
    """

    diagonal: Tensor
    cross: Tensor


def rotation(cos: Tensor, sin: Tensor) -> Rotation:
    """Make a rotation from cos and sin of every angle, each [B or 1, T, H or 1, F]."""
    return Rotation(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Apply `by` to x [B, T, H, 2F], in the type of `by`; return x's type."""
    if use_custom_backward(x):
        return rotate_on_cpu(x, *by)
    wide = x.to(by.diagonal.dtype)
    return (wide * by.diagonal + swap_halves(wide) * by.cross).to(x.dtype)


def trace_products(query: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> Tensor:
    """Compute sum_f tr(e_t e_i^T) of query t and key i, [B or 1, H or 1, T, T].

    `query` and `key` are the entries of the matrices e, as parts [B or 1, T, H or 1, ...].
    """
    queries, keys = (torch.cat(parts, -1).transpose(1, 2) for parts in (query, key))
    return queries @ keys.transpose(-1, -2)


def geometric_frequencies(count: int, base: float, device: torch.device | None = None) -> Tensor:
    """Return base^(-f/count) radians per token, float64 [count], the highest first."""
    return base ** (-torch.arange(count, dtype=torch.float64, device=device) / count)


class RotaryLayer(PositionalLayer):
    def turn(self, x: Tensor, by: Rotation) -> Tensor:
        """Rotate q or k [B, T, H, K] to its position; a subclass may rotate a part."""
        return rotate(x, by)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Rotation, seqs: Sequences
    ) -> tuple[Tensor, Rotation]:
        return super().attend(x, self.turn(q, state), self.turn(k, state), v, state, seqs)


class Rotary(PositionalEncoding):
    """Base: a subclass may change `frequencies`, their `spread` over a head, and the layer."""

    kind = "rotary"
    computes_with_index = True
    #: An extrapolation that changes the frequencies at test time only.
    rescaling: Callable[[Tensor, Tensor, Setting], tuple[Tensor, Tensor]] | None = None
    #: The reason why its frequencies must not follow a problem's length, as the end of a sentence.
    not_rescalable: ClassVar[str] = ""

    def __init__(self, setting: Setting, *, base: float = 10_000.0) -> None:
        self.base = base
        super().__init__(setting)
        if setting.head_dim % 2:
            raise UsageError(f"a rotary encoding needs an even head_dim, not {setting.head_dim}")
        if base <= 1:
            raise UsageError(f"base must be more than 1, not {base:g}")

    def layer(self, i: int) -> PositionalLayer:
        return RotaryLayer()

    def frequencies(self) -> Tensor:
        """Return the schedule in radians per token, float64 [R], the highest first.

        A `rescaling` changes it. Here R = F and theta_f = base^(-f/F).
        """
        return geometric_frequencies(self.setting.head_dim // 2, self.base)

    def spread(self, theta: Tensor) -> Tensor:
        """Map the schedule [..., R] to the pairs of a head, [..., F]; 0 leaves a pair unrotated."""
        return theta

    def cos_sin(self, index: Tensor, seqs: Sequences, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Compute cos and sin of each token's angles, [B or 1, T, 1, F], for a model of `dtype`.

        Angles are computed in float64 and only then rounded, to float32 or wider: in bfloat16
        the indices 3000 and 3001 are the same number.
        """
        theta, amplitude = self.frequencies(), None
        if theta.device != index.device:  # never where frequencies are learned
            theta = constant(theta.tolist(), index, theta.dtype)
        theta = theta.to(index.device)
        if self.rescaling is not None and not self.training:
            theta, amplitude = self.rescaling(theta, seqs.final_length, self.setting)
            count = len(seqs.final_length)
            theta = seqs.per_token(theta.expand(count, -1))
            amplitude = seqs.per_token(amplitude.expand(count))[..., None, None]
        angles = index.to(torch.float64)[..., None] * self.spread(theta)
        cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
        if amplitude is not None:
            cos, sin = cos * amplitude, sin * amplitude
        dtype = torch.promote_types(torch.float32, dtype)
        return cos.to(dtype), sin.to(dtype)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        by = rotation(*self.cos_sin(index, seqs, x.dtype))
        return repeat_for_heads(by, self.setting.num_heads)

    def inner_products(self, state: State) -> Tensor | None:
        """Compute sum_f tr(e_t e_i^T), for rotations 2 sum_f cos(theta_f (t - i)).

        A subclass with another kind of state overrides this.
        """
        return trace_products(state, state)
