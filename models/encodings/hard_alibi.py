from math import inf
from typing import Literal

from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import Setting, constant
from tape_arith.models.errors import UsageError
from tape_arith.models.families.scores import CommonAdditiveBias, Distances


class HardALiBi(CommonAdditiveBias):
    """The first heads see only the last w_h tokens; the others have no positions.

    b(t, i) = 0 if t - i < w_h, else minus infinity, for the first `windowed` heads, b = 0 for the
    rest. Every window includes the token itself. Nothing is learned. Hou et al. 2024 (arXiv
    2407.03310) use it too.

    windowed  heads with a window; by default half of all, at least one
    windows   w_h of these heads: 1, 2, 4, ... ("doubling") or 1, 2, 3, ... ("consecutive", as in
              the authors' code, sjelassi/transformers_ssm_copy)
    """

    label = "Hard-ALiBi"
    paper = "Jelassi et al. 2024, arXiv 2402.01032"
    needs = Needs(bias="fixed")

    def __init__(
        self,
        setting: Setting,
        *,
        windowed: int | None = None,
        windows: Literal["doubling", "consecutive"] = "doubling",
    ) -> None:
        super().__init__(setting)
        if windowed is not None and not 0 < windowed <= setting.num_heads:
            raise UsageError(
                f"hard-alibi: windowed must be 1 to {setting.num_heads} (heads), not {windowed}"
            )
        self.windowed = max(setting.num_heads // 2, 1) if windowed is None else windowed
        self.doubling = windows == "doubling"

    def bias(self, distances: Distances) -> Tensor:
        widths = [float(2**h if self.doubling else h + 1) for h in range(self.windowed)]
        widths += [inf] * (self.setting.num_heads - self.windowed)
        windows = constant(widths, distances.delta)
        hidden = distances.delta[:, None] >= windows[:, None, None]
        return distances.delta.new_zeros(hidden.shape).masked_fill(hidden, -inf)
