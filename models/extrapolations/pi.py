"""PI: positions are squeezed into the trained range."""

from typing import Literal

from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.families.rotary import Rescaling


class PI(Rescaling):
    """Interpolate positions: every frequency divided by the per-problem scale.

    theta'_f = theta_f / s; neighbouring digits come as close as 1/s positions. Without the paper's
    fine-tuning. `scale=problem`: s = max(1, final_length / L0) of each row; `scale=static`: s =
    max(1, L1 / L0) for all rows, short ones too.
    """

    kind = "at test time"
    paper = "Chen et al. 2023, arXiv 2306.15595"

    def __init__(self, *, scale: Literal["problem", "static"] = "problem") -> None:
        self.scale = scale

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        return theta / s[:, None]
