"""Rotary encodings: queries and keys turned by an angle that grows with the index.

Pairing is (f, f + F) everywhere: the halves of a head are real and imaginary parts. A schedule has
R frequencies, which may be fewer than F.
"""

from copy import copy
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from tape_arith.models.cpu_kernels import (
    repeat_for_heads,
    rotate_on_cpu,
    swap_halves,
    use_custom_backward,
)
from tape_arith.models.encoding import (
    Extrapolation,
    PositionalEncoding,
    PositionalLayer,
    Setting,
    State,
)
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


class Rotation(NamedTuple):
    """A linear map of each frequency's two coordinates, each part [B or 1, T, H or 1, 2F].

    It takes x to x * diagonal + swap_halves(x) * cross; a rotation has (cos, cos) and (-sin, sin).
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

    `query` and `key` are the entries of their matrices e, parts [B or 1, T, H or 1, ...].
    """
    queries, keys = (torch.cat(parts, -1).transpose(1, 2) for parts in (query, key))
    return queries @ keys.transpose(-1, -2)


def geometric_frequencies(count: int) -> Tensor:
    """Return 10000^(-f/count) radians a token, float64 [count], the highest first."""
    return 10000.0 ** (-torch.arange(count, dtype=torch.float64) / count)


def is_geometric(theta: Tensor) -> bool:
    """Tell whether frequencies are base^(-f/R), f from 0, as formulas in the base or f assume."""
    index = torch.arange(len(theta), dtype=theta.dtype)
    return len(theta) > 0 and torch.allclose(theta, theta[min(1, len(theta) - 1)] ** index)


class RotaryLayer(PositionalLayer):
    def turn(self, x: Tensor, by: Rotation) -> Tensor:
        """Turn q or k [B, T, H, K] to its position; a leaf may turn a part of it."""
        return rotate(x, by)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Rotation, seqs: Sequences
    ) -> tuple[Tensor, Rotation]:
        (heads,) = self.attention(self.turn(q, state), self.turn(k, state), (v,), seqs)
        return heads, state


class Rotary(PositionalEncoding):
    """Base: a leaf may change the `frequencies`, their `spread` over a head, and the layer."""

    #: Changes the frequencies at test time only.
    rescaling: "Rescaling | None" = None
    #: Why its frequencies must not follow a problem's length, as the end of a sentence.
    not_rescalable: ClassVar[str] = ""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        if setting.head_dim % 2:
            raise UsageError(f"a rotary encoding needs an even head_dim, not {setting.head_dim}")

    def layer(self, i: int) -> PositionalLayer:
        return RotaryLayer()

    def frequencies(self) -> Tensor:
        """Return the schedule in radians a token, float64 [R], the highest first.

        Rescalings change it. Here R = F and theta_f = 10000^(-f/F).
        """
        return geometric_frequencies(self.setting.head_dim // 2)

    def spread(self, theta: Tensor) -> Tensor:
        """Lay the schedule [..., R] over a head, [..., F]; zero leaves two dimensions alone."""
        return theta

    def cos_sin(self, index: Tensor, seqs: Sequences, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Compute cos and sin of each token's angles, [B or 1, T, 1, F], for a model of `dtype`.

        Angles are taken in float64 and only then rounded, to float32 at the least: in bfloat16
        the indices 3000 and 3001 are one number.
        """
        # Not blocking: else every forward would wait for the device to end the one before.
        theta, amplitude = self.frequencies().to(index.device, non_blocking=True), None
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
        """Multiply the entries of e: 2 sum_f cos(theta_f (t - i)) of rotations.

        A leaf whose state is something else overrides this.
        """
        return trace_products(state, state)


class Rescaling(Extrapolation):
    """Base of other frequencies for sequences longer than trained ones; a leaf `rescale`s."""

    #: Take s from each row's own bound, or from the longest tested sequence.
    scale: Literal["problem", "static"] = "problem"

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        """Return new frequencies, [B or 1, R], and the amplitude of cos and sin, [B or 1].

        All are float64 but final_length, int64 [B]: it is known before decoding. A scale that grew
        token by token would turn old keys.
        """
        length = final_length
        if self.scale == "static":
            length = final_length.new_full((1,), setting.max_length)
        s = (length.to(torch.float64) / setting.trained_length).clamp_min(1.0)
        return self.rescale(theta, s, setting), self.amplitude(s)

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        """Compute frequencies [B or 1, R] from theta [R] and s = max(1, length / L0), [B or 1]."""
        raise NotImplementedError

    def amplitude(self, s: Tensor) -> Tensor:
        """Compute the factor of cos and sin."""
        return torch.ones_like(s)

    def why_unfit(self, theta: Tensor) -> str | None:
        """Say why it cannot change frequencies theta ([0] if there are none), or None."""
        return None if len(theta) else "it has no frequencies to change"

    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        name = type(encoding).__name__
        if not isinstance(encoding, Rotary):
            return f"changes the frequencies of a rotary encoding; {name} has none"
        with torch.device("cpu"):
            reason = encoding.not_rescalable or self.why_unfit(encoding.frequencies().cpu())
        if not reason and not _start_rescales(encoding):
            reason = "its `start` does not take its angles from `cos_sin`, so nothing would change"
        return reason and f"cannot act on {name} here: {reason}"

    def apply(self, encoding: PositionalEncoding) -> None:
        assert isinstance(encoding, Rotary)
        encoding.rescaling = self


class _Probe(Rescaling):
    """Keeps the frequencies and remembers that it was called."""

    called = False

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        self.called = True
        return theta


def _start_rescales(encoding: Rotary) -> bool:
    """Tell whether `start`, which a subclass may override, calls the rescaling in evaluation."""
    encoding, probe = copy(encoding), _Probe()
    encoding.rescaling, encoding.training = probe, False
    with torch.device(next((p.device for p in encoding.parameters()), "cpu")):
        ids = torch.zeros(1, 2, dtype=torch.int64)
        features = torch.zeros(1, 2, encoding.setting.hidden_size)
        encoding.start(features, ids, Sequences(ids, ids[:, 0] + 2, ids[:, 0]))
    return probe.called
