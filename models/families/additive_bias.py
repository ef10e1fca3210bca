"""Encodings that add a bias to the scores."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, State
from tape_arith.models.sequences import Sequences


class Distances(NamedTuple):
    """Distances and indices as floats of the model's type, float32 at the least.

    delta [B or 1, T, T]: how far key i is behind query t, 0 if it is ahead; query [B or 1, T, 1]:
    the index of the query.
    """

    delta: Tensor
    query: Tensor


def distances(x: Tensor, index: Tensor) -> Distances:
    """Subtract the indices [B or 1, T] of keys from those of queries, in the type of x or wider."""
    query = index.to(torch.promote_types(torch.float32, x.dtype))[:, :, None]
    return Distances((query - query.transpose(1, 2)).clamp_min(0), query)


class AdditiveBiasLayer(PositionalLayer):
    """Base: adds the bias that a leaf computes."""

    def bias(self, distances: Any) -> Tensor:
        """Compute the bias of scaled scores from `Distances`, [B or 1, H, T, T].

        Future keys are masked later.
        """
        raise NotImplementedError

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        # Distances beyond 256 are not all numbers in bfloat16, so autocast stays out.
        with torch.autocast(x.device.type, enabled=False):
            bias = self.bias(state)
        (heads,) = self.attention(q, k, (v,), seqs, bias=bias)
        return heads, state


class AdditiveBias(PositionalEncoding):
    """Base: its layers, `AdditiveBiasLayer`s, compute biases from the distances."""

    needs = Needs(bias="learned", packed=False)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return distances(x, index)


class CommonBias(NamedTuple):
    """A bias for all layers, [B or 1, H, T, T]."""

    bias: Tensor


class CommonBiasLayer(AdditiveBiasLayer):
    def bias(self, distances: CommonBias) -> Tensor:
        return distances.bias


class CommonAdditiveBias(AdditiveBias):
    """Base: computes one bias a forward, for all layers, and holds its parameters, if any."""

    def layer(self, i: int) -> PositionalLayer:
        return CommonBiasLayer()

    def bias(self, distances: Distances) -> Tensor:
        """Compute the bias of scaled scores, [B or 1, H, T, T]; future keys are masked later."""
        raise NotImplementedError

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> CommonBias:
        with torch.autocast(x.device.type, enabled=False):
            return CommonBias(self.bias(distances(x, index)))
