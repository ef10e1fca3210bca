"""Changes to a rotary encoding at test time, for sequences longer than the trained ones.

One file each in models/extrapolations; the folder is the registry, as for encodings.
Legend: B batch, F frequencies.
"""

from typing import ClassVar

from torch import Tensor

from models.encoding import Setting


class Extrapolation:
    """Base. Stateless: the same call gives the same answer, whatever was asked before it.

    Keyword-only arguments of a subclass are its options.
    """

    kind: ClassVar[str] = "test-time extrapolation"
    paper: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        """New frequencies, float64 [B, F] or [1, F], and the amplitude of cos and sin, float64
        [B] or [1], from theta float64 [F] and final_length int64 [B] (tokens)."""
        raise NotImplementedError
