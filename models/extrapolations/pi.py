"""PI: positions are squeezed into the trained range."""

from typing import Literal

import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.families.rotary import Rescaling


class PI(Rescaling):
    """Interpolate positions: every frequency divided by the per-problem scale.

    theta'_f = theta_f / s, which is the index divided by s; amplitudes stay.
    Neighbouring digits come as close as 1/s positions. At test time only, without the paper's
    fine-tuning. `scale=problem` (default): s = max(1, final_length / L0) of each row, fixed before
    decoding; `scale=static`: s = max(1, L1 / L0) for all rows, short ones too.
    """

    kind = "at test time"
    paper = "Chen et al. 2023, arXiv 2306.15595"

    def __init__(self, *, scale: Literal["problem", "static"] = "problem") -> None:
        self.scale = scale

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        s = self.scale_factor(final_length, setting)
        return theta / s[:, None], torch.ones_like(s)
