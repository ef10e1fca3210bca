"""Dynamic NTK scaling: another base, by another law of the length."""

import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations.ntk import change_base, why_not_geometric
from tape_arith.models.families.rotary import Rescaling


class NTKDynamic(Rescaling):
    """Raise the base with the length of each problem, faster than NTK by `factor`.

    base' = base (a L/L0 - (a - 1))^(d/(d - 2)), a = `factor`, d rotated dimensions, L =
    final_length of the row, at least L0 (the formula of transformers' rope_type "dynamic" and of
    jquesnelle/yarn). It differs from ntk in two ways. What takes the
    place of ntk's s is a L/L0 - (a - 1): 1 at L0 and then a times as steep, so that a = 1 is ntk
    at scale=problem. And it never has one scale for all rows. Where those codes let L grow token by
    token, and keep it from the longest call before, here it is fixed before decoding and nothing
    is kept. `factor` defaults to max(1, L1 / L0), as their users set it to the extension they aim
    at. Amplitudes stay.
    """

    kind = "at test time"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(self, *, factor: float | None = None) -> None:
        if factor is not None and factor < 1:
            raise UsageError(f"ntk-dynamic: factor must be 1 or more, not {factor:g}")
        self.factor = factor

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        factor = self.factor
        if factor is None:
            factor = max(1.0, setting.max_length / setting.trained_length)
        s = 1 + factor * (self.scale_factor(final_length, setting) - 1)
        return change_base(theta, s), torch.ones_like(s)

    def why_unfit(self, theta: Tensor) -> str | None:
        return why_not_geometric(theta) or super().why_unfit(theta)
