"""FIRE at randomized positions."""

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.fire import FIRE
from tape_arith.models.families.randomized import Randomized


class RandFIRE(Randomized, FIRE):
    """FIRE at a sorted random subset of 0 .. l_max - 1.

    b(t, i) = f(psi(I_t - I_i) / psi(max(I_t, L))), where I is the subset and all else is FIRE's.
    One subset a sequence, shared by layers, drawn in training and at test time (one draw a
    problem). `l_max` defaults to 2 L1, `init_l` to L0 as in FIRE: most indices then lie beyond
    it, so that distances are interpolated from the start. Distances differ by row: the MLP runs
    over every pair of every row, where FIRE's runs once a batch. Not shift-invariant once
    I_t > L.
    """

    kind = "randomized"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Li et al. 2023, arXiv 2310.04418"

    def __init__(
        self,
        setting: Setting,
        *,
        l_max: int | None = None,
        init_l: float | None = None,
        width: int = 32,
    ) -> None:
        super().__init__(setting, init_l=init_l, width=width)
        self.set_l_max(l_max)
