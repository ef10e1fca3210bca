"""NTK-aware scaling: another base."""

from typing import Literal

import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.families.rotary import Rescaling, is_geometric


class NTK(Rescaling):
    """Raise the base until the lowest frequency is divided by the per-problem scale.

    base' = base s^(d/(d - 2)), d = 2R rotated dimensions, R frequencies: theta'_f =
    theta_f s^(-f/(R - 1)), so that the highest is kept, the lowest divided by s, and those between
    by powers in between (NTK-aware interpolation in YaRN's paper;
    first posted by bloc97). Amplitudes stay.
    `scale=problem` (default): s = max(1, final_length / L0) of each row, fixed before decoding;
    `scale=static`: s = max(1, L1 / L0) for all rows. Needs frequencies that are powers of one base,
    two at least.
    """

    kind = "at test time"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(self, *, scale: Literal["problem", "static"] = "problem") -> None:
        self.scale = scale

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        s = self.scale_factor(final_length, setting)
        return change_base(theta, s), torch.ones_like(s)

    def why_unfit(self, theta: Tensor) -> str | None:
        return why_not_geometric(theta) or super().why_unfit(theta)


def change_base(theta: Tensor, s: Tensor) -> Tensor:
    """Multiply the base of theta [R] by s^(R/(R - 1)), s [B]: [B, R]."""
    count = len(theta)
    exponent = torch.arange(count, dtype=theta.dtype, device=theta.device) / (count - 1)
    return theta * s[:, None] ** -exponent


def why_not_geometric(theta: Tensor) -> str | None:
    """Say why the base of theta [R] cannot be raised; None if it can, or if theta is empty."""
    if len(theta) == 1:
        return "it has one frequency, which is the highest and the lowest; use pi"
    if len(theta) and not is_geometric(theta):
        return "its frequencies are not powers of one base; use pi"
    return None
