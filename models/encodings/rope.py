"""RoPE: rotary position embedding."""

from tape_arith.models.encoding import Setting
from tape_arith.models.families.rotary import Rotary


class RoPE(Rotary):
    """Queries and keys rotated by theta_f x index, over all head dimensions.

    q~_t = Rot(theta_f t) q_t, k~_i = Rot(theta_f i) k_i, theta_f = base^(-2f/K), so that scores
    depend on t - i alone (Eq. 34). Dimensions f and f + K/2 are a pair.

    base  of the frequencies; with 10000 nine of 16 make less than a tenth of a turn within mini's
          trained length, 28 tokens
    """

    paper = "Su et al. 2021, arXiv 2104.09864"

    def __init__(self, setting: Setting, *, base: float = 10_000.0) -> None:
        super().__init__(setting, base=base)
