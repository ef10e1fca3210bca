from typing import Literal

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.alibi import ALiBi
from tape_arith.models.families.randomized import Randomized, position_range


class RandALiBi(Randomized, ALiBi):
    """ALiBi at a sorted random subset of 0 .. l_max - 1.

    The authors' code draws a sorted subset of *distances* instead, one per layer for all queries of
    a batch.

    l_max  number of indices to draw from; by default 2 L1
    draw   "subset": whole numbers; "float": sorted real numbers in [0, l_max), uniform and
           independent (Random Float Sampling, Shimizu et al. 2026, arXiv 2602.14050)
    """

    label = "Randomized ALiBi"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Press et al. 2021, arXiv 2108.12409"
    told_by = "l_max"

    def __init__(
        self,
        setting: Setting,
        *,
        l_max: int | None = None,
        draw: Literal["subset", "float"] = "subset",
    ) -> None:
        self.l_max, self.real = position_range(setting, l_max), draw == "float"
        super().__init__(setting)
