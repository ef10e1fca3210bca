"""RoPE: rotary position embedding."""

from tape_arith.models.families.rotary import Rotary


class RoPE(Rotary):
    """Queries and keys rotated by theta_f x index, over all head dimensions, base 10000.

    q~_t = Rot(theta_f t) q_t, k~_i = Rot(theta_f i) k_i, so that scores depend on t - i alone
    (Eq. 34). Dimensions f and f + K/2 are a pair.
    """

    kind = "rotary"
    paper = "Su et al. 2021, arXiv 2104.09864"
