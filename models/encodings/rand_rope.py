from typing import Literal

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.rope import RoPE
from tape_arith.models.families.randomized import Randomized, position_range


class RandRoPE(Randomized, RoPE):
    """RoPE at a sorted random subset of 0 .. l_max - 1 (the RandPE of the TAPE paper).

    The authors' code draws one subset per batch and, for RoPE, per layer.

    l_max  number of indices to draw from; by default 2 L1
    draw   "subset": whole numbers; "float": sorted real numbers in [0, l_max), uniform and
           independent (Random Float Sampling, Shimizu et al. 2026, arXiv 2602.14050)
    base   as for `rope`
    """

    label = "Randomized RoPE"
    paper = "Ruoss et al. 2023, arXiv 2305.16843; Su et al. 2021, arXiv 2104.09864"
    told_by = "l_max"
    not_rescalable = "its positions come from the same range at every length"

    def __init__(
        self,
        setting: Setting,
        *,
        l_max: int | None = None,
        draw: Literal["subset", "float"] = "subset",
        base: float = 10_000.0,
    ) -> None:
        self.l_max, self.real = position_range(setting, l_max), draw == "float"
        super().__init__(setting, base=base)
