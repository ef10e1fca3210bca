"""xPos: RoPE whose scores decay with the distance.

Legend: B batch, T tokens, H heads, K head dim, F = K/2 frequencies.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from models.encoding import PositionalLayer, Setting
from models.errors import UsageError
from models.families.rotary import Rotary, Rotation, rotate, rotation, traces
from models.sequences import Sequences

GAMMA = 0.4


class XPosState(NamedTuple):
    """What turns and scales queries, and what keys: each part [B or 1, T, H or 1, 2F]."""

    query: Rotation
    key: Rotation


class XPosLayer(PositionalLayer):
    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: XPosState, seqs: Sequences
    ) -> tuple[Tensor, XPosState]:
        (heads,) = self.attention(rotate(q, state.query), rotate(k, state.key), (v,), seqs)
        return heads, state


class XPos(Rotary):
    """RoPE whose frequency f decays by zeta_f^(distance/S), the fast ones soonest.

    On top of RoPE q is multiplied by zeta_f^((t - c)/S) and k by zeta_f^(-(i - c)/S), zeta_f =
    (f/F + 0.4) / 1.4, so that a score is RoPE's sum with each term times zeta_f^((t - i)/S)
    (Algorithm 1). The frequencies, zeta and the reciprocal on keys are those of the authors' code
    (microsoft/torchscale, 776b070); the paper's text was not at hand. S is `scale_base`, L0/2 by
    default: with 512 the factor stays above 0.74 at 124 tokens, which is nearly RoPE. No
    parameters; training and test alike; nothing ends beyond L0.

    c cancels and only keeps the factors near 1: half of L1, from the index of the first token.
    torchscale takes half of the present length, so that keys already stored no longer fit. The
    paper's blockwise attention at test time is not part of this. Extrapolations change angles, not
    the decay: that goes by the true distance (x-transformers does so too).
    """

    kind = "rotary"
    paper = "Sun et al. 2022, arXiv 2212.10554"

    def __init__(self, setting: Setting, *, scale_base: float | None = None) -> None:
        self.scale_base = setting.trained_length / 2 if scale_base is None else float(scale_base)
        if self.scale_base <= 0:
            raise UsageError(f"xpos: scale_base must be more than 0, not {scale_base:g}")
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return XPosLayer()

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> XPosState:
        cos, sin = self.cos_sin(index, seqs, torch.float64)
        half = self.setting.head_dim // 2
        zeta = torch.arange(half, dtype=torch.float64, device=index.device) / half + GAMMA
        center = seqs.offset + self.setting.max_length / 2
        power = (index.to(torch.float64) - center) / self.scale_base
        growth = (zeta / (1 + GAMMA)) ** power[..., None, None]
        dtype = torch.promote_types(torch.float32, x.dtype)

        def scaled(factor: Tensor) -> Rotation:
            return self.for_heads(rotation((cos * factor).to(dtype), (sin * factor).to(dtype)))

        return XPosState(scaled(growth), scaled(1 / growth))

    def inner_products(self, state: XPosState) -> Tensor:
        """Of what turns queries with what turns keys: the decay is in it."""
        return traces(state.query, state.key)
