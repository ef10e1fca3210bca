"""KERPLE with the power kernel.

Legend: B batch, T tokens, H heads.
"""

from torch import Tensor

from tape_arith.models.families.kerple import Kerple


class KerplePower(Kerple):
    """A penalty that grows with a power of the distance, two learned numbers a head.

    b(t, i) = -a_h (t - i)^p_h, a > 0, 0 < p <= 2, [H] each (Chi et al., the power variant); ALiBi
    where p = 1. At first p ~ U(0, 2) and a ~ U(0, 1); after each step p is kept in [0.01, 2] and a
    at 0.01 or more (the authors' code does it before each forward, which is the same). p and a are
    shared by all layers, since that code hands one module to every layer. Training and test are
    alike; beyond L0 it goes on as it is. Kernel, initial values and bounds are those of the
    authors' code (chijames/KERPLE, megatron/mpu/layers.py, 73f1ee2, without its other option of
    multiplying the scores); the paper's text was not at hand.
    """

    kind = "relative bias"
    paper = "Chi et al. 2022, arXiv 2205.09921"
    most_p = 2.0

    def kernel(self, delta: Tensor, p: Tensor, a: Tensor) -> Tensor:
        # ln 0 in the gradient of 0^p would be no number: distances are whole, so 1 is the least
        # but for 0, whose bias is 0.
        return -a * delta.clamp_min(1) ** p * (delta > 0)
