"""Hard-ALiBi: heads that see only a window of the last tokens, beside heads without positions.

Legend: B batch, T tokens, H heads.
"""

from math import inf
from typing import Literal

from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import Setting, constant
from tape_arith.models.errors import UsageError
from tape_arith.models.families.additive_bias import CommonAdditiveBias, Distances


class HardALiBi(CommonAdditiveBias):
    """The first heads see the last w_h tokens and nothing else; the others have no positions.

    b(t, i) = 0 where t - i < w_h, else minus infinity, for the first `windowed` heads, half of
    them by default; b = 0 for the rest. w_h = 1, 2, 4, ... (`windows=doubling`), or 1, 2, 3, ...
    (`windows=consecutive`), which is what the authors' code does (sjelassi/transformers_ssm_copy,
    where 8 of 16 heads are windowed by default). The token itself is in every window, so that no
    row of scores is empty. Fixed, the same in all layers, training and test alike; beyond L0 it
    goes on as it is. Also used by Hou et al. 2024 (arXiv 2407.03310); neither paper was checked.
    """

    kind = "relative bias"
    paper = "Jelassi et al. 2024, arXiv 2402.01032"
    needs = Needs(bias="fixed", packed=False)

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
        self.windowed = setting.num_heads // 2 if windowed is None else windowed
        self.rule = windows

    def windows(self) -> list[float]:
        """Return w of each head, infinity for heads without positions."""
        heads = range(self.windowed)
        windows = [float(2**h if self.rule == "doubling" else h + 1) for h in heads]
        return windows + [inf] * (self.setting.num_heads - self.windowed)

    def bias(self, distances: Distances) -> Tensor:
        windows = constant(self.windows(), distances.delta)
        hidden = distances.delta[:, None] >= windows[:, None, None]
        return distances.delta.new_zeros(hidden.shape).masked_fill(hidden, -inf)
