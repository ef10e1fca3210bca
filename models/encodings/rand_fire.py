from typing import Literal

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.fire import FIRE
from tape_arith.models.families.randomized import Randomized, position_range


class RandFIRE(Randomized, FIRE):
    """FIRE at a sorted random subset of 0 .. l_max - 1.

    Most indices are beyond `init_l`, so distances are interpolated from the start. Indices differ
    by sequence, so the MLP runs over the pairs of every sequence; FIRE's runs once per batch.

    l_max   number of indices to draw from; by default 2 L1
    draw    "subset": whole numbers; "float": sorted real numbers in [0, l_max), uniform and
            independent (Random Float Sampling, Shimizu et al. 2026, arXiv 2602.14050)
    init_l  first value of L; by default L0
    width   hidden width of the MLP
    """

    label = "Randomized FIRE"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Li et al. 2023, arXiv 2310.04418"
    told_by = "l_max"

    def __init__(
        self,
        setting: Setting,
        *,
        l_max: int | None = None,
        draw: Literal["subset", "float"] = "subset",
        init_l: float | None = None,
        width: int = 32,
    ) -> None:
        self.l_max, self.real = position_range(setting, l_max), draw == "float"
        super().__init__(setting, init_l=init_l, width=width)
