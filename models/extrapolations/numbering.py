"""Change the indices of randomized encodings at test time: `rand-rope+even`."""

from abc import abstractmethod

import torch
from torch import Tensor

from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.errors import UsageError
from tape_arith.models.extrapolations.extrapolation import Extrapolation
from tape_arith.models.families.randomized import Randomized


class Numbering(Extrapolation):
    """Base: gives the tokens of a randomized encoding other indices than in training."""

    @abstractmethod
    def __call__(self, encoding: Randomized, key: Tensor, final_length: Tensor) -> Tensor:
        """Return indices below l_max for each sequence, laid out as by `Randomized.drawn`."""

    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        if isinstance(encoding, Randomized):
            return None
        return f"changes randomized positions; {type(encoding).__name__} has none"

    def apply(self, encoding: PositionalEncoding) -> None:
        assert isinstance(encoding, Randomized)
        encoding.numbering = self


class Plain(Numbering):
    """Number tokens 0, 1, 2, ..., as encodings without randomness do.

    The paper draws random indices in evaluation too; some later code evaluates with plain indices.
    """

    name = "plain"
    label = "plain"
    paper = "Ruoss et al. 2023, arXiv 2305.16843"

    def __call__(self, encoding: Randomized, key: Tensor, final_length: Tensor) -> Tensor:
        return torch.arange(encoding.l_max, device=key.device).expand(len(key), -1)


class Even(Numbering):
    """Number tokens evenly over the whole range of training's draws, without randomness.

    Token t of a sequence that may grow to n tokens gets floor((2t + 1) l_max / (2n)), the middle of
    the t-th of n equal parts of 0 .. l_max - 1. This is not in the paper; it separates the effect
    of randomness from that of the spread.
    """

    name = "even"
    label = "even"
    paper = "Ruoss et al. 2023, arXiv 2305.16843"

    def __call__(self, encoding: Randomized, key: Tensor, final_length: Tensor) -> Tensor:
        l_max = encoding.l_max
        t = torch.arange(l_max, device=key.device)
        # Past a sequence's end the formula exceeds the range, and would overrun tables.
        return ((2 * t + 1) * l_max // (2 * final_length[:, None])).clamp_max(l_max - 1)


class Redraw(Numbering):
    """Number tokens by another draw of their random numbers, which shows the effect of a draw.

    A grid holds one draw, because averages of several are not binomial counts; to average over
    draws, average their grids.

    draw  number of the independent draw, from 1; 0 is the encoding's own
    """

    name = "redraw"
    label = "redraw"
    paper = "Ruoss et al. 2023, arXiv 2305.16843"

    def __init__(self, *, draw: int = 1) -> None:
        if not 1 <= draw < 2**32:
            raise UsageError(f"redraw: draw must be from 1 to {2**32 - 1}, not {draw}")
        self.draw = draw

    def __call__(self, encoding: Randomized, key: Tensor, final_length: Tensor) -> Tensor:
        return encoding.drawn(key, final_length, self.draw)
