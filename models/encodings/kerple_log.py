"""KERPLE with the logarithmic kernel.

Legend: B batch, T tokens, H heads.
"""

from torch import Tensor

from tape_arith.models.families.kerple import Kerple


class KerpleLog(Kerple):
    """A penalty that grows with the logarithm of the distance, two learned numbers a head.

    b(t, i) = -p_h ln(1 + a_h (t - i)), p, a > 0, [H] each (Chi et al., the logarithmic variant). At
    first p ~ U(0, 2) and a ~ U(0, 1); both are kept at 0.01 or more after each step (the authors'
    code does it before each forward, which is the same). p and a are shared by all layers, since
    that code hands one module to every layer. Training and test are alike; beyond L0 it goes on as
    it is. Kernel, initial values and bounds are those of the authors' code (chijames/KERPLE,
    megatron/mpu/layers.py, 73f1ee2); the paper's text was not at hand.
    """

    kind = "relative bias"
    paper = "Chi et al. 2022, arXiv 2205.09921"

    def kernel(self, delta: Tensor, p: Tensor, a: Tensor) -> Tensor:
        return -p * (a * delta).log1p()
