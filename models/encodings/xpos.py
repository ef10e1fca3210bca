import math
from typing import NamedTuple

import torch
from torch import Tensor

from tape_arith.models.attention import Eager
from tape_arith.models.cpu_kernels import repeat_for_heads
from tape_arith.models.encoding import PositionalLayer, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary, Rotation, rotate, rotation, trace_products
from tape_arith.models.sequences import Sequences

GAMMA = 0.4
MAX_EXPONENT_FLOAT32, MAX_EXPONENT_FLOAT64 = 60, 600  # of e; they leave room for q k^T
_EAGER = Eager()


class XPosState(NamedTuple):
    """Maps that rotate and scale queries and keys: each part [B or 1, T, H or 1, 2F]."""

    query: Rotation
    key: Rotation


class XPosLayer(PositionalLayer):
    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: XPosState, seqs: Sequences
    ) -> tuple[Tensor, XPosState]:
        # Only eager attention, in float64, can apply a decay that float32 cannot hold.
        wide = state.query.diagonal.dtype == torch.float64 and q.dtype != torch.float64
        if wide:
            q, k = q.double(), k.double()
        attention = _EAGER if wide else self.attention
        (heads,) = attention(rotate(q, state.query), rotate(k, state.key), (v,), seqs)
        return heads, state


class XPos(Rotary):
    """RoPE whose frequency f decays by zeta_f^(distance/S), high frequencies fastest.

    On top of RoPE q is multiplied by zeta_f^((t - c)/S) and k by zeta_f^(-(i - c)/S), zeta_f =
    (f/F + 0.4) / 1.4, so that a score is RoPE's sum with each term times zeta_f^((t - i)/S)
    (Algorithm 1, and the authors' code, microsoft/torchscale, 776b070). S is `scale_base`.

    c cancels in the score and only keeps the factors near 1. It is L1/2 after the first token's
    index (torchscale uses half of the current length, which stored keys do not follow as it grows).
    The paper's blockwise attention at test time is left out. Extrapolations keep the decay.

    scale_base  S; decay slows as S grows; by default L0/2. With 512 the factor is above 0.74 at
                124 tokens, which is nearly RoPE
    base        as for `rope`
    """

    label = "xPos"
    paper = "Sun et al. 2022, arXiv 2212.10554"

    def __init__(
        self, setting: Setting, *, scale_base: float | None = None, base: float = 10_000.0
    ) -> None:
        self.scale_base = setting.trained_length / 2 if scale_base is None else float(scale_base)
        if self.scale_base <= 0:
            raise UsageError(f"xpos: scale_base must be more than 0, not {self.scale_base:g}")
        super().__init__(setting, base=base)

    def layer(self, i: int) -> PositionalLayer:
        return XPosLayer()

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> XPosState:
        cos, sin = self.cos_sin(index, seqs, torch.float64)
        half = self.setting.head_dim // 2
        zeta = torch.arange(half, dtype=torch.float64, device=index.device) / half + GAMMA
        center = seqs.offset + self.setting.max_length / 2
        power = (index.to(torch.float64) - center) / self.scale_base
        growth = (zeta / (1 + GAMMA)) ** power[..., None, None]
        dtype = self._dtype(x.dtype, seqs)

        def scaled(factor: Tensor) -> Rotation:
            by = rotation((cos * factor).to(dtype), (sin * factor).to(dtype))
            return repeat_for_heads(by, self.setting.num_heads)

        return XPosState(scaled(growth), scaled(1 / growth))

    def _dtype(self, features: torch.dtype, seqs: Sequences) -> torch.dtype:
        """Choose the type that holds the decay of the token farthest from the center c.

        Raises UsageError if no type holds it.
        """
        tokens = seqs.width * (self.stretch if self.training else 1)
        center = self.setting.max_length / 2
        exponent = max(center, tokens - center) / self.scale_base * math.log((1 + GAMMA) / GAMMA)
        if exponent > MAX_EXPONENT_FLOAT64:
            raise UsageError(
                f"xpos: over {tokens:g} tokens scale_base={self.scale_base:g} decays beyond what "
                f"float64 holds: choose {self.scale_base * exponent / 500:.3g} or more"
            )
        wide = torch.float64 if exponent > MAX_EXPONENT_FLOAT32 else torch.float32
        return torch.promote_types(wide, features)

    def inner_products(self, state: XPosState) -> Tensor:
        """Multiply the maps of queries and of keys, decay included."""
        return trace_products(state.query, state.key)
