"""Rotary encodings: queries and keys turned by an angle that grows with the index.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies, R of them in the schedule.
Pairing is (f, f + F) everywhere: the two halves of a head are the real and imaginary parts.
"""

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


def trace_products(query: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> Tensor:
    """sum_f tr(e_t e_i^T) of query t and key i, [B or 1, H or 1, T, T]: their matrices' entries,
    parts [B or 1, T, H or 1, ...], multiplied one by one and added up."""
    of_query, of_key = (torch.cat(by, -1).transpose(1, 2) for by in (query, key))
    return of_query @ of_key.transpose(-1, -2)


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Apply `by` to x [B, T, H, 2F], in the type of `by`; returned in x's type."""
    if use_custom_backward(x):
        return rotate_on_cpu(x, *by)
    wide = x.to(by.diagonal.dtype)
    return (wide * by.diagonal + swap_halves(wide) * by.cross).to(x.dtype)


class RotaryLayer(PositionalLayer):
    """A leaf may say what of a head is turned."""

    def turn(self, x: Tensor, by: Rotation) -> Tensor:
        """Turn q or k [B, T, H, K] to its position."""
        return rotate(x, by)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Rotation, seqs: Sequences
    ) -> tuple[Tensor, Rotation]:
        (heads,) = self.attention(self.turn(q, state), self.turn(k, state), (v,), seqs)
        return heads, state


def geometric_frequencies(count: int) -> Tensor:
    """Return 10000^(-f/count) radians a token, float64 [count], the highest first."""
    return 10000.0 ** (-torch.arange(count, dtype=torch.float64) / count)


class Rotary(PositionalEncoding):
    """Base: a leaf says its `frequencies` (and may say how they lie over a head, `spread`, and
    what a layer does).

    `rescaling` changes the frequencies at test time only; a training run never sees it.
    """

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
        """The schedule in radians a token, float64 [R], the highest first: what a rescaling
        changes. Here R = F and theta_f = 10000^(-f/F)."""
        return geometric_frequencies(self.setting.head_dim // 2)

    def spread(self, theta: Tensor) -> Tensor:
        """The schedule [..., R] over the frequencies of a head, [..., F]. Zero leaves the two
        dimensions of a frequency alone."""
        return theta

    def cos_sin(self, index: Tensor, seqs: Sequences, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin of each token's angles, [B or 1, T, 1, F], for a model of type `dtype`.

        Angles are taken in float64 and only then rounded, to float32 at the least: in bfloat16
        the indices 3000 and 3001 are one number.
        """
        # Not blocking, and so few that they are copied aside at once: else every forward would wait
        # for the device to end the one before.
        theta, amplitude = self.frequencies().to(index.device, non_blocking=True), None
        if self.rescaling is not None and not self.training:
            theta, amplitude = self.rescaling(theta, seqs.final_length, self.setting)
            count = len(seqs.final_length)
            theta = seqs.per_token(theta.expand(count, -1))
            amplitude = seqs.per_token(amplitude.expand(count))
        angles = index.to(torch.float64)[..., None] * self.spread(theta)
        cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
        if amplitude is not None:
            cos, sin = cos * amplitude[..., None, None], sin * amplitude[..., None, None]
        dtype = torch.promote_types(torch.float32, dtype)
        return cos.to(dtype), sin.to(dtype)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        by = rotation(*self.cos_sin(index, seqs, x.dtype))
        return repeat_for_heads(by, self.setting.num_heads)

    def inner_products(self, state: State) -> Tensor | None:
        """Of rotations 2 sum_f cos(theta_f (t - i)), of TAPE's e what has become of it: the state
        is taken for the entries of e. A leaf whose state is something else says how it
        multiplies."""
        return trace_products(state, state)


class Rescaling(Extrapolation):
    """Base of what gives a rotary encoding other frequencies, for sequences longer than those of
    training."""

    #: Of which sequence s is taken: each row's own bound, or the longest one of the test.
    scale: Literal["problem", "static"] = "problem"

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        """New frequencies, float64 [B, R] or [1, R], and the amplitude of cos and sin, float64
        [B] or [1], from theta float64 [R] and final_length int64 [B] (tokens)."""
        raise NotImplementedError

    def why_unfit(self, theta: Tensor) -> str | None:
        """Why it cannot act on frequencies theta ([0] where there are none), as the end of a
        sentence; None where it can."""
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

    def scale_factor(self, final_length: Tensor, setting: Setting) -> Tensor:
        """Compute s = length / L0, at least 1: float64 [B], or [1] if rows share it.
        Known before decoding; never grown token by token, which would turn old keys."""
        length = final_length
        if self.scale == "static":
            length = final_length.new_full((1,), setting.max_length)
        return (length.to(torch.float64) / setting.trained_length).clamp_min(1.0)


def is_geometric(theta: Tensor) -> bool:
    """Whether frequencies are base^(-f/R), f from 0, as formulas in the base or in f assume."""
    index = torch.arange(len(theta), dtype=theta.dtype)
    return len(theta) > 0 and torch.allclose(theta, theta[min(1, len(theta) - 1)] ** index)


class _Witness(Rescaling):
    """Keeps the frequencies and remembers that it was asked."""

    called = False

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        self.called = True
        return theta, torch.ones(1, dtype=torch.float64, device=theta.device)


def _start_rescales(encoding: Rotary) -> bool:
    """Tell whether `start`, which a subclass may override, asks the rescaling in evaluation."""
    before, mode, witness = encoding.rescaling, encoding.training, _Witness()
    encoding.rescaling = witness
    encoding.eval()
    try:
        with torch.device(next((p.device for p in encoding.parameters()), "cpu")):
            ids = torch.zeros(1, 2, dtype=torch.int64)
            features = torch.zeros(1, 2, encoding.setting.hidden_size)
            encoding.start(features, ids, Sequences(ids, ids[:, 0] + 2, ids[:, 0]))
    finally:
        encoding.rescaling = before
        encoding.train(mode)
    return witness.called
