"""NTK-aware scaling: another base."""

from typing import Literal

import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.families.rotary import Rescaling, is_geometric


class NTK(Rescaling):
    """Raise the base until the lowest frequency is divided by the per-problem scale.

    base' = base s^(d/(d - 2)), d = 2R rotated dimensions: theta'_f = theta_f s^(-f/(R - 1)), so
    that the highest is kept and the lowest divided by s (NTK-aware interpolation in YaRN's paper;
    first posted by bloc97). `scale=problem`: s = max(1, final_length / L0) of each row;
    `scale=static`: s = max(1, L1 / L0) for all rows.
    """

    kind = "at test time"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(self, *, scale: Literal["problem", "static"] = "problem") -> None:
        self.scale = scale

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        count = len(theta)
        exponent = torch.arange(count, dtype=theta.dtype, device=theta.device) / (count - 1)
        return theta * s[:, None] ** -exponent

    def why_unfit(self, theta: Tensor) -> str | None:
        if len(theta) == 1:
            return "it has one frequency, which is the highest and the lowest; use pi"
        if len(theta) and not is_geometric(theta):
            return "its frequencies are not powers of one base; use pi"
        return super().why_unfit(theta)
