"""Sinusoidal embeddings at randomized positions."""

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.sinusoidal import Sinusoidal
from tape_arith.models.families.randomized import Randomized


class RandSinusoidal(Randomized, Sinusoidal):
    """Sinusoidal embeddings at a sorted random subset of 0 .. l_max - 1.

    sqrt(D) x_t + [sin(w_k I_t); cos(w_k I_t)], where I is the subset. One subset a sequence, drawn
    in training and at test time (one draw a problem). The authors' code draws one a batch; the
    paper does not say. `l_max` defaults to 2 L1. For the scale of the sum see Sinusoidal.
    """

    kind = "randomized"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Vaswani et al. 2017, arXiv 1706.03762"

    def __init__(self, setting: Setting, *, l_max: int | None = None) -> None:
        super().__init__(setting)
        self.set_l_max(l_max)
