"""Add a bias to the scores of queries and keys, or change the scores."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tape_arith.models.attention import Needs, causal_softmax, gather_values, scaled_scores
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, Setting, State
from tape_arith.models.sequences import Sequences


class Distances(NamedTuple):
    """Distances and indices as floats of the model's type, float32 at the least.

    delta [B or 1, T, T]: from key i to query t, 0 if the key is later; query [B or 1, T, 1]: the
    index of the query. If packed, T is the length of the longest sequence.
    """

    delta: Tensor
    query: Tensor


def distances(x: Tensor, index: Tensor) -> Distances:
    """Subtract the indices [B or 1, T] of keys from those of queries, in the type of x or wider."""
    query = index.to(torch.promote_types(torch.float32, x.dtype))[:, :, None]
    return Distances((query - query.transpose(1, 2)).clamp_min(0), query)


class AdditiveBiasLayer(PositionalLayer):
    """Adds the bias that `start` computed for all layers, or that a subclass computes."""

    def bias(self, state: Any) -> Tensor:
        """Compute the bias of scaled scores, [B or 1, H, T, T]; future keys are masked later."""
        bias: Tensor = state.bias
        return bias

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        # Without autocast, because bfloat16 skips whole distances beyond 256.
        with torch.autocast(x.device.type, enabled=False):
            bias = self.bias(state)
        (heads,) = self.attention(q, k, (v,), seqs, bias=bias)
        return heads, state


class AdditiveBias(PositionalEncoding):
    """Base: each layer, an `AdditiveBiasLayer`, computes its bias from `Distances`.

    Packed sequences share the bias of the longest, unless a subclass has indices of its own.
    """

    kind = "relative bias"
    computes_with_index = True
    needs = Needs(bias="learned")

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        plain = type(self).indices is PositionalEncoding.indices
        self.needs = self.needs._replace(packed=self.needs.packed and plain)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        if seqs.starts is not None:
            index = torch.arange(seqs.longest, device=index.device)[None] + seqs.offset
        return distances(x, index)


class CommonBias(NamedTuple):
    """A bias for all layers, [B or 1, H, T, T]."""

    bias: Tensor


class CommonAdditiveBias(AdditiveBias, ABC):
    """Base: computes one bias per forward for all layers, and holds the bias's parameters."""

    def layer(self, i: int) -> PositionalLayer:
        return AdditiveBiasLayer()

    @abstractmethod
    def bias(self, distances: Distances) -> Tensor:
        """Compute the bias of scaled scores, [B or 1, H, T, T]; future keys are masked later."""

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> CommonBias:
        with torch.autocast(x.device.type, enabled=False):
            return CommonBias(self.bias(super().start(x, index, seqs)))


class ScoresLayer(PositionalLayer):
    """Base: a subclass overrides `scores`, or `weights` if it takes no softmax.

    Both run outside autocast, in float32 or wider, because bfloat16 is too coarse for sums over
    many keys and for gates near 1.
    """

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        """Compute the scores, [B, H, T, T]; future keys are masked later.

        x [B, T, D] is the block's normalized input; q, k [B, T, H, K], q times `seqs.query_scale`.
        """
        return scaled_scores(q, k)

    def weights(self, scores: Tensor) -> Tensor:
        """Compute attention weights, [B, H, T, T], zero at future keys."""
        return causal_softmax(scores)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        assert seqs.starts is None
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(torch.float32, q.dtype)
            q = seqs.scaled(q.to(wide))
            weights = self.weights(self.scores(x.to(wide), q, k.to(wide), state))
        seqs.show("weights", weights)
        return gather_values(weights, v), state


class FromScores(PositionalEncoding):
    """Base: its layers are `ScoresLayer`s; sequences are padded rows, never packed."""

    kind = "content"
    needs = Needs(bias="scores", packed=False)
