import torch
from torch import Tensor

from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.rotary import Rotary


class PRoPE(Rotary):
    """RoPE without its lowest frequencies: only the share `p` of the highest rotates.

    theta_f = base^(-f/F) for f < floor(p F) and 0 for the rest, whose dimensions match by content
    alone at any distance (code in the paper's appendix). Extrapolations act on the full schedule,
    before the lowest frequencies are set to 0.

    p     share of the frequencies that rotate: 1 is RoPE, 0 would be NoPE
    base  as for `rope`
    """

    label = "p-RoPE"
    paper = "Barbero et al. 2024, arXiv 2410.06205"

    def __init__(self, setting: Setting, *, p: float = 0.75, base: float = 10_000.0) -> None:
        self.turning = int(p * setting.head_dim // 2)
        if not 0 < p <= 1 or self.turning < 1:
            raise UsageError(
                f"p-rope: p must be in (0, 1] and keep a frequency of {setting.head_dim // 2}, "
                f"not {p:g}"
            )
        super().__init__(setting, base=base)

    def spread(self, theta: Tensor) -> Tensor:
        turns = torch.arange(theta.shape[-1], device=theta.device) < self.turning
        return theta * turns
