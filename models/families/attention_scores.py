"""Encodings that compute with the scores of queries and keys themselves."""

import torch
from torch import Tensor

from tape_arith.models.attention import Needs, causal_softmax, gather_values, scaled_scores
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, State
from tape_arith.models.sequences import Sequences


class ScoresLayer(PositionalLayer):
    """Base: a leaf changes `scores`, or `weights` if they are no softmax.

    Both run outside autocast, on float32 or wider: bfloat16 holds neither sums over many keys nor
    gates that are nearly 1.
    """

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        """Compute the scores, [B, H, T, T]; future keys are masked later.

        x [B, T, D] is the block's normalized input; q, k [B, T, H, K].
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
            weights = self.weights(self.scores(x.to(wide), q.to(wide), k.to(wide), state))
        seqs.show("weights", weights)
        return gather_values(weights, v), state


class FromScores(PositionalEncoding):
    """Base: its layers are `ScoresLayer`s; rows are padded."""

    kind = "content"
    needs = Needs(bias="scores", packed=False)
