"""Changes to a rotary encoding at test time, for sequences longer than the trained ones.

One file each in models/extrapolations; the folder is the registry, as for encodings.
Legend: B batch, R frequencies of the encoding's schedule.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from models.encoding import Setting


class Extrapolation:
    """Base. Stateless: the same call gives the same answer, whatever was asked before it.

    Keyword-only arguments of a subclass are its options.
    """

    kind: ClassVar[str] = "test-time extrapolation"
    paper: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()

    #: Of which sequence s is taken: each row's own bound, or the longest one of the test.
    scale: Literal["problem", "static"] = "problem"

    def __call__(
        self, theta: Tensor, final_length: Tensor, setting: Setting
    ) -> tuple[Tensor, Tensor]:
        """New frequencies, float64 [B, R] or [1, R], and the amplitude of cos and sin, float64
        [B] or [1], from theta float64 [R] and final_length int64 [B] (tokens)."""
        raise NotImplementedError

    def lacks(self, theta: Tensor) -> str | None:
        """Why it cannot act on an encoding of frequencies theta ([0] where it has none), as the
        end of a sentence; None where it can."""
        return None if len(theta) else "it has no frequencies to change"

    def stretch(self, final_length: Tensor, setting: Setting) -> Tensor:
        """s = length / L0, at least 1: float64 [B], or [1] where it is the same for all rows.
        Known before decoding; never grown token by token, which would turn old keys."""
        length = final_length
        if self.scale == "static":
            length = torch.as_tensor(setting.max_length, device=final_length.device)[None]
        return (length.to(torch.float64) / setting.trained_length).clamp_min(1.0)


def of_one_base(theta: Tensor) -> bool:
    """Whether frequencies are base^(-f/R), f from 0: what a formula in the base or in f means."""
    index = torch.arange(len(theta), dtype=theta.dtype)
    return len(theta) > 0 and torch.allclose(theta, theta[min(1, len(theta) - 1)] ** index)
