"""What computes attention, and what an encoding asks of it.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

from typing import ClassVar, NamedTuple

from torch import Tensor

from models.hardware import Hardware
from models.sequences import Sequences


class Needs(NamedTuple):
    """What an encoding asks of attention.

    values   how many tensors one map gathers: v, and what the encoding mixes along with it
    bias     what is added to the scores: "none", "fixed" or "learned" (its gradient is needed);
             "scores" where the encoding computes with the scores themselves, in plain products of
             its own
    packed   whether it can run on sequences packed end to end; a bias over all pairs of tokens of
             a batch cannot exist
    query    how many times as wide as v the queries and keys are
    width    of a head: K, from the decoder's sizes; an encoding leaves it open
    """

    values: int = 1
    bias: str = "none"
    packed: bool = True
    query: int = 1
    width: int = 0


class Backend:
    """One way to compute causal attention; every one gives what `eager` gives."""

    #: As after --attention.
    name: ClassVar[str]
    #: Whether it takes sequences packed end to end without padding them first.
    packs: ClassVar[bool] = False
    #: Whether it has weights to show to `Sequences.watch`, and does.
    shows: ClassVar[bool] = False

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        """Why it cannot do what is asked for, as the end of a sentence; None where it can."""
        raise NotImplementedError

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        values: tuple[Tensor, ...],
        seqs: Sequences,
        *,
        scale: float | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """softmax(scale q k^T + bias) over the keys up to each query, times each of `values`.

        q, k [B, T, H, K]; each value [B or 1, T, H or 1, V] (V may differ from K); bias
        [B or 1, H, T, T]; returns one [B, T, H, V] for each value. `scale` defaults to K^-1/2.
        """
        raise NotImplementedError
