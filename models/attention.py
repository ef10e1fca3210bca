"""Causal attention: its formula in plain products, the interface of a backend, and the reference.

Tensors are token-major. Legend: B batch, T tokens, H heads, K head dim, V value width.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from tape_arith.models.hardware import Hardware
from tape_arith.models.sequences import Sequences, pack, unpack

Values = tuple[Tensor, ...]
Bias = Tensor | None


def scaled_scores(q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
    """Compute scale q k^T, future keys included: [B, H, T, T], in float32 or wider.

    q, k [B, T, H, K]; `scale` defaults to K^-1/2. The product is taken in the type of q and k; its
    softmax is not, because bfloat16 numbers near 12 are 0.06 apart.
    """
    if scale is None:
        scale = q.shape[-1] ** -0.5
    scores = (q * scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def causal_softmax(scores: Tensor) -> Tensor:
    """Take the softmax of scores [B, H, T, T] over the keys up to each query."""
    return (scores + future_mask(scores)).softmax(-1)


def future_mask(scores: Tensor) -> Tensor:
    """Build the mask [T, T] of scores [..., T, T], in their type: -inf for future keys, else 0."""
    tokens = scores.shape[-1]
    future = torch.full((tokens, tokens), float("-inf"), dtype=scores.dtype, device=scores.device)
    return future.triu(1)


def gather_values(weights: Tensor, values: Tensor) -> Tensor:
    """Multiply weights [B, H, T, T] by values [B or 1, T, H or 1, V] into [B, T, H, V].

    The result has the type of the values.
    """
    return (weights.to(values.dtype) @ values.transpose(1, 2)).transpose(1, 2)


class Needs(NamedTuple):
    """Requirements of an encoding on attention.

    values   number of tensors that one attention map gathers: v and tensors of the encoding
    bias     kind of bias added to the scores: "none", "fixed" or "learned" (needs its gradient);
             "scores" if the encoding computes with the scores itself, in plain products
    packed   whether it runs on sequences packed end to end, which all get the same bias if any
    query    width of queries and keys as a multiple of the width of v
    width    head dim K; the decoder sets it
    """

    values: int = 1
    bias: str = "none"
    packed: bool = True
    query: int = 1
    width: int = 0


class Backend(ABC):
    """One way to compute causal attention, with the same result as `Eager`."""

    #: The value of --backend that selects it.
    name: ClassVar[str]
    #: Whether it computes on sequences packed end to end without padding them first.
    packs: ClassVar[bool] = False

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        values: Values,
        seqs: Sequences,
        *,
        scale: float | None = None,
        bias: Bias = None,
    ) -> Values:
        """Multiply softmax(scale q k^T + bias), over keys up to each query, by each of `values`.

        q is multiplied by `seqs.query_scale` first; a bias that is computed from q is not, so its
        encoding calls `seqs.scaled`.

        q, k [B, T, H, K]; each value [B or 1, T, H or 1, V] (V may differ from K); bias
        [B or 1, H or 1, T, T], of packed sequences [1, H or 1, longest, longest]; returns one
        [B, T, H, V] for each value. `scale` defaults to K^-1/2.
        """
        if scale is None:
            scale = q.shape[-1] ** -0.5
        return self.attend(seqs.scaled(q), k, values, seqs, scale, bias)

    @abstractmethod
    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        """Say why this cannot meet `needs` here, as the end of a sentence; None if it can."""

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, values: Values, seqs: Sequences, scale: float, bias: Bias
    ) -> Values:
        """Compute what `__call__` describes."""


class Eager(Backend):
    """The reference, in plain products: it meets all needs and pads packed sequences.

    It is the fastest on a CPU, where torch's fused kernel is several times slower at these lengths.
    """

    name = "eager"

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        return None

    def attend(
        self, q: Tensor, k: Tensor, values: Values, seqs: Sequences, scale: float, bias: Bias
    ) -> Values:
        if seqs.starts is not None:
            q, k = unpack(q, seqs), unpack(k, seqs)
            values = tuple(unpack(v, seqs) for v in values)
        scores = scaled_scores(q, k, scale=scale)
        weights = causal_softmax(scores if bias is None else scores + bias)
        seqs.show("weights", weights)
        mixed = tuple(gather_values(weights, v) for v in values)
        return mixed if seqs.starts is None else tuple(pack(heads, seqs) for heads in mixed)
