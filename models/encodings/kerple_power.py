from torch import Tensor

from tape_arith.models.encodings.kerple_log import KerpleLog


class KerplePower(KerpleLog):
    """A penalty that grows with a power of the distance, with two learned numbers per head.

    b(t, i) = -a_h (t - i)^p_h, a > 0, 0 < p <= 2; ALiBi if p = 1. p is kept in [0.01, 2]; the
    rest is as in KerpleLog. The authors' option to multiply scores instead is left out.
    """

    label = "KERPLE-power"
    paper = "Chi et al. 2022, arXiv 2205.09921"
    most_p = 2.0

    def kernel(self, delta: Tensor, p: Tensor, a: Tensor) -> Tensor:
        # The gradient of 0^p has ln 0, which is not finite. Other distances are at least 1, so
        # clamping changes only distance 0, whose bias is 0.
        return -a * delta.clamp_min(1) ** p * (delta > 0)
