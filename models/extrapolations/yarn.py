"""YaRN: slow rotations are interpolated, fast ones kept."""

import math
from typing import Literal

import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rescaling, is_geometric

# Rotations within the trained length: from BETA_FAST on a frequency is kept, below BETA_SLOW it
# is interpolated fully (the paper's alpha = 1 and beta = 32).
BETA_FAST, BETA_SLOW = 32, 1


class YaRN(Rescaling):
    """Interpolate slow frequencies and keep fast ones, by per-problem scale.

    theta'_f = theta_f [(1 - g_f)/s + g_f], cos and sin times 0.1 ln s + 1. `ramp=code`: g falls
    linearly in the *index* f, as in the authors' code, which keeps the fastest frequency at the
    lengths of this suite; `ramp=paper`: g is linear in the number of rotations r = L0 theta / 2 pi,
    (r - 1)/31 clamped to [0, 1] (Eq. 18 and 19), which slows even theta = 1 by a fifth at L0 = 124.
    `scale=problem`: s = max(1, final_length / L0) of each row; `scale=static`: s = L1 / L0.
    """

    kind = "at test time"
    paper = "Peng et al. 2023, arXiv 2309.00071"

    def __init__(
        self,
        *,
        ramp: Literal["code", "paper"] = "code",
        scale: Literal["problem", "static"] = "problem",
    ) -> None:
        self.ramp = {"code": code_ramp, "paper": paper_ramp}[ramp]
        self.scale = scale

    def rescale(self, theta: Tensor, s: Tensor, setting: Setting) -> Tensor:
        keep = self.ramp(theta, setting.trained_length)
        # keep + (1 - keep)/s would leave rows of s = 1 a rounding away from the trained model.
        return theta * torch.where(s[:, None] > 1, (1 - keep) / s[:, None] + keep, 1.0)

    def amplitude(self, s: Tensor) -> Tensor:
        return 0.1 * s.log() + 1

    def why_unfit(self, theta: Tensor) -> str | None:
        if self.ramp is code_ramp and len(theta) and not is_geometric(theta):
            return "its frequencies are not those that ramp=code counts; use yarn:ramp=paper"
        return super().why_unfit(theta)


def code_ramp(theta: Tensor, trained_length: int) -> Tensor:
    """Compute g_f by index, as in jquesnelle/yarn; float64 [F]."""
    frequencies = theta.shape[-1]

    def index_of(rotations: int) -> float:
        """Return the (real) index whose frequency turns so often within the trained length."""
        return frequencies * math.log(trained_length / (rotations * 2 * math.pi)) / math.log(10000)

    low = max(math.floor(index_of(BETA_FAST)), 0)
    high = min(math.ceil(index_of(BETA_SLOW)), 2 * frequencies - 1)
    if high <= low:
        raise UsageError(
            f"yarn: a trained length of {trained_length} tokens is less than one turn of the "
            "fastest frequency; use ramp=paper"
        )
    index = torch.arange(frequencies, dtype=torch.float64, device=theta.device)
    return 1 - ((index - low) / (high - low)).clamp(0, 1)


def paper_ramp(theta: Tensor, trained_length: int) -> Tensor:
    """Compute gamma(r) of the paper, r the rotations within the trained length; float64 [F]."""
    rotations = trained_length * theta / (2 * math.pi)
    return ((rotations - BETA_SLOW) / (BETA_FAST - BETA_SLOW)).clamp(0, 1)
