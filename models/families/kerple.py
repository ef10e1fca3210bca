"""KERPLE: kernels of the distance with two learned numbers a head (Chi et al. 2022).

Legend: B batch, T tokens, H heads.
"""

from math import inf
from typing import ClassVar

import torch
from torch import Tensor, nn

from tape_arith.models.encoding import Setting
from tape_arith.models.families.additive_bias import CommonAdditiveBias, Distances

# As in the authors' code: the kernel wants both numbers positive.
LEAST = 0.01


class Kerple(CommonAdditiveBias):
    """Base: p and a of each head [H], shared by all layers. A leaf fills in `kernel`."""

    most_p: ClassVar[float] = inf

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.p = nn.Parameter(2 * torch.rand(setting.num_heads))
        self.a = nn.Parameter(torch.rand(setting.num_heads))
        self.after_step()

    def kernel(self, delta: Tensor, p: Tensor, a: Tensor) -> Tensor:
        """Compute the bias [B or 1, H, T, T]; delta [B or 1, 1, T, T], p and a [H, 1, 1]."""
        raise NotImplementedError

    def bias(self, distances: Distances) -> Tensor:
        dtype = distances.delta.dtype
        # `after_step` keeps them in range; weights that took no step may lie outside.
        p = self.p.to(dtype).clamp(LEAST, self.most_p)
        a = self.a.to(dtype).clamp_min(LEAST)
        return self.kernel(distances.delta[:, None], p[:, None, None], a[:, None, None])

    def after_step(self) -> None:
        """Clamp p and a: out of range they would get no gradient."""
        with torch.no_grad():
            self.p.clamp_(LEAST, self.most_p)
            self.a.clamp_min_(LEAST)
