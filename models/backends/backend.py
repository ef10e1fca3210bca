"""The interface of an attention backend, and the requirements of an encoding.

Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

from typing import ClassVar, NamedTuple

from torch import Tensor

from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences


class Needs(NamedTuple):
    """Requirements of an encoding on attention.

    values   number of tensors that one attention map gathers: v and others of the encoding
    bias     added to the scores: "none", "fixed" or "learned" (its gradient is needed); "scores"
             if the encoding computes with the scores itself, in plain products of its own
    packed   whether it can run on sequences packed end to end, where no bias over all pairs exists
    query    width of queries and keys as a multiple of that of v
    width    head dim K; the decoder sets it
    """

    values: int = 1
    bias: str = "none"
    packed: bool = True
    query: int = 1
    width: int = 0


class Backend:
    """One way to compute causal attention, with the same result as `eager`."""

    #: The name after --attention.
    name: ClassVar[str]
    #: Whether it takes sequences packed end to end without padding them first.
    packs: ClassVar[bool] = False
    #: Whether it passes attention weights to `Sequences.watch`.
    shows: ClassVar[bool] = False

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        """Say why it does not meet `needs` here, as the end of a sentence; None if it does."""
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
        """Multiply softmax(scale q k^T + bias) over keys up to each query and each of `values`.

        q, k [B, T, H, K]; each value [B or 1, T, H or 1, V] (V may differ from K); bias
        [B or 1, H, T, T]; returns one [B, T, H, V] for each value. `scale` defaults to K^-1/2.
        """
        raise NotImplementedError
