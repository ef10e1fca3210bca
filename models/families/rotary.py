"""Rotary encodings: queries and keys turned by an angle that grows with the index.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies.
Pairing is (f, f + F) everywhere: the two halves of a head are the real and imaginary parts.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from models.attention import attention
from models.encoding import PositionalEncoding, PositionalLayer, Setting, State
from models.errors import UsageError
from models.extrapolation import Extrapolation
from models.sequences import Sequences


class Rotation(NamedTuple):
    """What `rotate` multiplies by, each [B or 1, T, H or 1, 2F]: (cos, cos) and (-sin, sin)."""

    cos: Tensor
    sin: Tensor


def rotation(cos: Tensor, sin: Tensor) -> Rotation:
    """From cos and sin of every angle, each [B or 1, T, H or 1, F]."""
    return Rotation(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """x [B, T, H, 2F], seen as F complex numbers, times cos + i sin.

    Computed in the type of `by`, returned in x's. Casting first, and whole halves at a time:
    products of mixed types and of strided pieces are several times slower on a CPU.
    """
    wide = x.to(by.cos.dtype)
    return (wide * by.cos + wide.roll(x.shape[-1] // 2, -1) * by.sin).to(x.dtype)


class RotaryLayer(PositionalLayer):
    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Rotation, seqs: Sequences
    ) -> tuple[Tensor, Rotation]:
        (heads,) = attention(rotate(q, state), rotate(k, state), (v,))
        return heads, state


class Rotary(PositionalEncoding):
    """Base: a leaf says its `frequencies` (and may say what a layer does).

    `extrapolation` changes the frequencies at test time only; a training run never sees it.
    """

    extrapolation: Extrapolation | None = None

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        if setting.head_dim % 2:
            raise UsageError(f"a rotary encoding needs an even head_dim, not {setting.head_dim}")

    def layer(self, i: int) -> PositionalLayer:
        return RotaryLayer()

    def frequencies(self) -> Tensor:
        """Radians a token, float64 [F], the highest first: theta_f = 10000^(-f/F)."""
        half = self.setting.head_dim // 2
        return 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)

    def cos_sin(self, index: Tensor, seqs: Sequences, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin of each token's angles, [B or 1, T, 1, F], for a model of type `dtype`.

        Angles are taken in float64 and only then rounded, to float32 at the least: in bfloat16
        the indices 3000 and 3001 are one number.
        """
        theta, amplitude = self.frequencies().to(index.device), None
        if self.extrapolation is not None and not self.training:
            theta, amplitude = self.extrapolation(theta, seqs.final_length, self.setting)
        angles = index.to(torch.float64)[:, :, None, None] * theta.view(-1, 1, 1, theta.shape[-1])
        cos, sin = angles.cos(), angles.sin()
        if amplitude is not None:
            cos, sin = cos * amplitude.view(-1, 1, 1, 1), sin * amplitude.view(-1, 1, 1, 1)
        dtype = torch.promote_types(torch.float32, dtype)
        return cos.to(dtype), sin.to(dtype)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return rotation(*self.cos_sin(index, seqs, x.dtype))
