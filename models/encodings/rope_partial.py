import torch
from torch import Tensor

from tape_arith.models.encoding import PositionalLayer, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import (
    Rotary,
    RotaryLayer,
    Rotation,
    geometric_frequencies,
    rotate,
)


class RoPEPartialLayer(RotaryLayer):
    def turn(self, x: Tensor, by: Rotation) -> Tensor:
        rotated = by.diagonal.shape[-1]
        return torch.cat((rotate(x[..., :rotated], by), x[..., rotated:]), -1)


class RoPEPartial(Rotary):
    """RoPE of the first `fraction` of the head dimensions, with its own frequencies (GPT-NeoX).

    Of K head dimensions the first d = int(fraction K) are rotated (rounded down to even,
    at least two), f and f + d/2 as a pair, by theta_f = base^(-2f/d), f < d/2: fewer frequencies
    span RoPE's range (EleutherAI/gpt-neox, rotary_pct 0.25). Published length-generalization suites
    call this encoding with a quarter "rotary". Extrapolations change these d/2 frequencies and
    the amplitude of the rotated dimensions alone, as in transformers.

    fraction  share of the head dimensions that are rotated
    base      as for `rope`
    """

    label = "Partial RoPE"
    paper = "Black et al. 2022, arXiv 2204.06745"

    def __init__(self, setting: Setting, *, fraction: float = 0.25, base: float = 10_000.0) -> None:
        if not 0 < fraction <= 1:
            raise UsageError(f"rope-partial: fraction must be in (0, 1], not {fraction:g}")
        self.rotated = 2 * max(1, int(fraction * setting.head_dim) // 2)
        super().__init__(setting, base=base)

    def layer(self, i: int) -> PositionalLayer:
        return RoPEPartialLayer()

    def frequencies(self) -> Tensor:
        return geometric_frequencies(self.rotated // 2, self.base)
