"""Encodings that add a bias to the scores.

Legend: B batch, T tokens, H heads.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, State
from tape_arith.models.sequences import Sequences


class Distances(NamedTuple):
    """delta [B or 1, T, T]: how far key i is behind query t, 0 where it is ahead; query
    [B or 1, T, 1]: the index of the query. Floats of the model's type, float32 at the least."""

    delta: Tensor
    query: Tensor


class AdditiveBiasLayer(PositionalLayer):
    """A leaf fills in `bias`."""

    def bias(self, distances: Distances) -> Tensor:
        """Compute what the scaled scores gain: [B or 1, H, T, T]; future keys are masked later."""
        raise NotImplementedError

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Distances, seqs: Sequences
    ) -> tuple[Tensor, Distances]:
        # Distances beyond 256 are not all numbers in bfloat16, so autocast stays out.
        with torch.autocast(x.device.type, enabled=False):
            bias = self.bias(state)
        (heads,) = self.attention(q, k, (v,), seqs, bias=bias)
        return heads, state


def distances(x: Tensor, index: Tensor) -> Distances:
    """Subtract the indices [B or 1, T] of keys from those of queries, in the type of x or wider."""
    query = index.to(torch.promote_types(torch.float32, x.dtype))[:, :, None]
    return Distances((query - query.transpose(1, 2)).clamp_min(0), query)


class AdditiveBias(PositionalEncoding):
    """Base: carries the distances; a leaf says which layer turns them into a bias, and in `needs`
    whether it is learned."""

    needs = Needs(bias="learned", packed=False)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return distances(x, index)


class CommonBias(NamedTuple):
    """bias [B or 1, H, T, T], added to the scores of every layer."""

    bias: Tensor


class CommonBiasLayer(PositionalLayer):
    """Adds what the encoding computed once."""

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: CommonBias, seqs: Sequences
    ) -> tuple[Tensor, CommonBias]:
        (heads,) = self.attention(q, k, (v,), seqs, bias=state.bias)
        return heads, state


class CommonAdditiveBias(AdditiveBias):
    """Base of what gives all layers one bias: the encoding itself holds the parameters, if there
    are any, and computes the bias once a forward. A leaf fills in `bias`."""

    def layer(self, i: int) -> PositionalLayer:
        return CommonBiasLayer()

    def bias(self, distances: Distances) -> Tensor:
        """Compute what the scaled scores gain: [B or 1, H, T, T]; future keys are masked later."""
        raise NotImplementedError

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> CommonBias:
        with torch.autocast(x.device.type, enabled=False):
            return CommonBias(self.bias(distances(x, index)))
