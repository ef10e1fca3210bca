"""ALiBi: attention with linear biases."""

from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import constant
from tape_arith.models.families.scores import CommonAdditiveBias, Distances


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slopes 2^(-8h/H), h = 1 .. H, if H is a power of two.

    Otherwise those of the next lower power, then every other slope of the next higher power, from
    its first on.

    >>> alibi_slopes(2), alibi_slopes(3)
    ([0.0625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    slopes += [2.0 ** (-4 * h / below) for h in range(1, 2 * below, 2)]
    return slopes[:num_heads]


class ALiBi(CommonAdditiveBias):
    """A penalty proportional to the distance, with a fixed slope per head.

    b(t, i) = -m_h (t - i), m_h from `alibi_slopes` (section 3 of the paper; from the authors' code
    if H is no power of two). That code adds m_h i, which differs by a constant per query that the
    softmax cancels. Nothing is learned.
    """

    paper = "Press et al. 2021, arXiv 2108.12409"
    needs = Needs(bias="fixed")

    def slopes(self) -> list[float]:
        """Return m_h of each head."""
        return alibi_slopes(self.setting.num_heads)

    def bias(self, distances: Distances) -> Tensor:
        slopes = constant(self.slopes(), distances.delta)
        return -slopes[:, None, None] * distances.delta[:, None]
