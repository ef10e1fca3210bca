from typing import Literal

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.sinusoidal import Sinusoidal
from tape_arith.models.families.randomized import Randomized, position_range


class RandSinusoidal(Randomized, Sinusoidal):
    """Sinusoidal embeddings at a sorted random subset of 0 .. l_max - 1.

    The authors' code draws one subset per batch.

    l_max  number of indices to draw from; by default 2 L1
    draw   "subset": whole numbers; "float": sorted real numbers in [0, l_max), uniform and
           independent (Random Float Sampling, Shimizu et al. 2026, arXiv 2602.14050)
    """

    label = "Randomized sinusoidal"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Vaswani et al. 2017, arXiv 1706.03762"
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
