from math import inf
from typing import ClassVar

import torch
from torch import Tensor, nn

from tape_arith.models.encoding import Setting
from tape_arith.models.families.scores import CommonAdditiveBias, Distances

# The authors' bound: the kernel needs p and a above 0.
LEAST = 0.01


class KerpleLog(CommonAdditiveBias):
    """A penalty that grows with the logarithm of the distance, with two learned numbers per head.

    b(t, i) = -p_h ln(1 + a_h (t - i)), p, a > 0, [H] each, shared by all layers. At first p ~
    U(0, 2) and a ~ U(0, 1); both are kept at 0.01 or more after each step. Kernel, initial values,
    bounds and sharing are those of the authors' code (chijames/KERPLE, megatron/mpu/layers.py,
    73f1ee2).
    """

    label = "KERPLE-log"
    paper = "Chi et al. 2022, arXiv 2205.09921"
    most_p: ClassVar[float] = inf

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.p = nn.Parameter(2 * torch.rand(setting.num_heads))
        self.a = nn.Parameter(torch.rand(setting.num_heads))
        self.after_step()

    def kernel(self, delta: Tensor, p: Tensor, a: Tensor) -> Tensor:
        """Compute the bias [B or 1, H, T, T] from delta [B or 1, 1, T, T], p and a [H, 1, 1]."""
        return -p * (a * delta).log1p()

    def bias(self, distances: Distances) -> Tensor:
        dtype = distances.delta.dtype
        # `after_step` keeps p and a in range; weights set otherwise may lie outside.
        p = self.p.to(dtype).clamp(LEAST, self.most_p)
        a = self.a.to(dtype).clamp_min(LEAST)
        return self.kernel(distances.delta[:, None], p[:, None, None], a[:, None, None])

    def after_step(self) -> None:
        """Clamp p and a, which would get no gradient out of range."""
        with torch.no_grad():
            self.p.clamp_(LEAST, self.most_p)
            self.a.clamp_min_(LEAST)
