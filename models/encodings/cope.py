"""CoPE: contextual position encoding. P: positions."""

import torch
from torch import Tensor, nn

from tape_arith.models.attention import scaled_scores
from tape_arith.models.encoding import PositionalLayer, Setting, State, Workload, check_least
from tape_arith.models.families.scores import FromScores, ScoresLayer


class CoPELayer(ScoresLayer):
    def __init__(self, positions: int, head_dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(positions, head_dim))

    def positions(self, scores: Tensor) -> Tensor:
        """Compute the position of each key for each query, [B, H, T, T], 0 to P - 1."""
        # Future gates are dropped first, because the sum from key i on would include them.
        gates = scores.sigmoid().tril()
        return gates.flip(-1).cumsum(-1).flip(-1).clamp_max(len(self.table) - 1)

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        scores = scaled_scores(q, k)
        position = self.positions(scores)
        rows = q.transpose(1, 2) @ self.table.to(q.dtype).T  # [B, H, T, P]
        below, above = position.floor(), position.ceil()
        share = position - below.detach()
        lower, upper = (rows.gather(-1, at.detach().long()) for at in (below, above))
        return scores + lower + share * (upper - lower)


class CoPE(FromScores):
    """Positions that count only the keys that the query's gates select.

    g(t, i) = sigmoid(s(t, i)), s the scaled score; p(t, i) = min(g(t, i) + .. + g(t, t), P - 1);
    the logit is s(t, i) + q_t e[p(t, i)], e interpolated between the rows at floor(p) and ceil(p)
    (Eq. 3 to 5 of the paper; its appendix leaves q_t unscaled and gates by the scaled score). The
    heads of a layer share e [P, K], zero at first, so the model starts as NoPE. A GPU sums the
    gradient of e in no fixed order.

    positions  P, the rows of e
    """

    paper = "Golovneva et al. 2024, arXiv 2405.18719"
    no_decay = ("table",)

    def __init__(self, setting: Setting, *, positions: int = 64) -> None:
        check_least("cope", 2, positions=positions)
        self.positions = positions
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return CoPELayer(self.positions, self.setting.head_dim)

    def multiply_adds(self, extent: Workload) -> int:
        """Count the products of queries with every row of e."""
        return extent.tokens * self.setting.width * self.positions
