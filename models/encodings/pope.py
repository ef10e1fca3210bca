"""PoPE: polar coordinates, magnitudes from the content and angles from the position.

Each of a head's K dimensions has its own frequency.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import PositionalLayer, Setting, Workload
from tape_arith.models.families.rotary import (
    Rotary,
    geometric_frequencies,
    rotation,
    trace_products,
)
from tape_arith.models.sequences import Sequences


class Angles(NamedTuple):
    """cos and sin of each token's angles, each [B or 1, T, 1, K]."""

    cos: Tensor
    sin: Tensor


class PoPELayer(PositionalLayer):
    def __init__(self, setting: Setting, uniform: bool) -> None:
        super().__init__()
        phase = torch.zeros(setting.num_heads, setting.head_dim)
        self.phase = nn.Parameter(phase.uniform_(-2 * math.pi, 0) if uniform else phase)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Angles, seqs: Sequences
    ) -> tuple[Tensor, Angles]:
        cos, sin = state
        phase = self.phase.to(cos.dtype).clamp(-2 * math.pi, 0)
        shifted = Angles(
            cos * phase.cos() - sin * phase.sin(), sin * phase.cos() + cos * phase.sin()
        )
        scale = q.shape[-1] ** -0.5
        (heads,) = self.attention(polar(q, state), polar(k, shifted), (v,), seqs, scale=scale)
        return heads, state


def polar(x: Tensor, at: Angles) -> Tensor:
    """Build complex numbers of magnitude softplus(x) at these angles: [B, T, H, 2K], real first."""
    magnitude = F.softplus(x.to(at.cos.dtype))
    return torch.cat((magnitude * at.cos, magnitude * at.sin), -1).to(x.dtype)


class PoPE(Rotary):
    """Scores with softplus magnitudes from the content and angles from the index alone.

    score = sum_c softplus(q_c) softplus(k_c) cos((i - t) theta_c + delta_c) / sqrt(K), theta_c =
    base^(-c/K), c = 0 .. K - 1. The keys' phases delta [H, K] are learned within [-2 pi, 0],
    without weight decay. Plain attention gets queries and keys as [cos | sin], twice as wide.

    After each step a phase beyond the range is set to the nearer end, because with a clamp in the
    forward alone it would get no gradient any more. Formula, frequencies and bounds are those of
    lucidrains/PoPE-pytorch (2b91cde) and x-transformers, whose layers share the phases; we know of
    no code by the authors.

    phase  where phases start: at 0 ("zero") or at random in [-2 pi, 0] ("uniform")
    base   as for `rope`
    """

    paper = "Gopalakrishnan et al. 2025, arXiv 2509.10534"
    no_decay = ("phase",)
    needs = Needs(query=2)

    def __init__(
        self,
        setting: Setting,
        *,
        phase: Literal["zero", "uniform"] = "zero",
        base: float = 10_000.0,
    ) -> None:
        self.phase = phase
        super().__init__(setting, base=base)

    def layer(self, i: int) -> PositionalLayer:
        return PoPELayer(self.setting, self.phase == "uniform")

    def frequencies(self) -> Tensor:
        return geometric_frequencies(self.setting.head_dim, self.base)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> Angles:
        return Angles(*self.cos_sin(index, seqs, x.dtype))

    def inner_products(self, state: Angles) -> Tensor:
        """Multiply the angles without phases, which belong to keys and not to positions."""
        by = rotation(*state)
        return trace_products(by, by)

    def multiply_adds(self, extent: Workload) -> int:
        """Count the products with the second half of queries and keys."""
        return extent.pairs * self.setting.width

    def after_step(self) -> None:
        with torch.no_grad():
            for phase in self.parameters():
                phase.clamp_(-2 * math.pi, 0)
