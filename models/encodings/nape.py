from typing import Literal

from tape_arith.models.encoding import Setting
from tape_arith.models.encodings.alibi import ALiBi, alibi_slopes


class NAPE(ALiBi):
    """ALiBi on the first half of the heads, nothing on the others.

    b(t, i) = -m_h (t - i) for h = 1 .. H/2 (rounded down, at least one head), 0 for the rest. The
    paper's sparse attention (entmax) and its learned temperature are left out.

    slopes  m_h: 1/h for any H ("linear", the default of the authors' code, deep-spin/asentmax; all
            steep if there are few heads), or those of an ALiBi of these heads ("geometric")
    """

    paper = "Vasylenko et al. 2025, arXiv 2506.16640"

    def __init__(
        self, setting: Setting, *, slopes: Literal["linear", "geometric"] = "linear"
    ) -> None:
        super().__init__(setting)
        self.linear = slopes == "linear"

    def slopes(self) -> list[float]:
        """Return m_h of each head, 0 for heads without positions."""
        biased = max(self.setting.num_heads // 2, 1)
        slopes = [1 / h for h in range(1, biased + 1)] if self.linear else alibi_slopes(biased)
        return slopes + [0.0] * (self.setting.num_heads - biased)
