"""Encodings that compute with the scores of queries and keys themselves.

Legend: B batch, T tokens, D hidden, H heads, K head dim.
"""

import torch
from torch import Tensor

from tape_arith.models.attention import Needs, causal_softmax, gather_values, scaled_scores
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, State
from tape_arith.models.sequences import Sequences


class ScoresLayer(PositionalLayer):
    """A leaf fills in `scores`, or `weights` where it has another way to make them than a softmax.

    Both run outside autocast, on float32 or wider: sums over many keys are no numbers for
    bfloat16, nor are gates that are nearly 1.
    """

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        """Compute the scores, [B, H, T, T]; future keys are masked later.

        x [B, T, D] is the block's normalized input; q, k [B, T, H, K].
        """
        return scaled_scores(q, k)

    def weights(self, scores: Tensor) -> Tensor:
        """Compute attention weights, [B, H, T, T]: zero at future keys."""
        return causal_softmax(scores)

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        assert seqs.starts is None
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(torch.float32, q.dtype)
            weights = self.weights(self.scores(x.to(wide), q.to(wide), k.to(wide), state))
        seqs.show("weights", weights)
        return gather_values(weights, v), state


class FromScores(PositionalEncoding):
    """Base: padded rows, plain products. Its layers are `ScoresLayer`s of a leaf's own."""

    kind = "content"
    needs = Needs(bias="scores", packed=False)
