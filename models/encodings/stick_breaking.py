import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.models.encoding import PositionalLayer
from tape_arith.models.families.scores import FromScores, ScoresLayer


class StickBreakingLayer(ScoresLayer):
    def weights(self, scores: Tensor) -> Tensor:
        """Divide the stick among past keys; the diagonal gets the rest, so that rows sum to 1."""
        tokens = scores.shape[-1]
        past = torch.ones(tokens, tokens, dtype=torch.bool, device=scores.device).tril(-1)
        left = F.logsigmoid(-scores).where(past, 0)
        left = left.flip(-1).cumsum(-1).flip(-1)  # log of the rest after key i
        # The rest before key i is a shift of this; a difference would round.
        before = F.pad(left[..., 1:], (0, 1))
        share = (F.logsigmoid(scores) + before).masked_fill(~past, float("-inf")).exp()
        return share + torch.diag_embed(left[..., 0].exp())


class StickBreaking(FromScores):
    """Each past token, the nearest first, takes a share of the remaining attention.

    A(t, i) = beta(t, i) x the product over i < k < t of 1 - beta(t, k), beta = sigmoid of the
    scaled score, over strictly past tokens; the remainder 1 - sum A(t, i) goes to the token's own
    value, as in the authors' kernel tests (their later language models give it to a learned bias
    and normalize the heads). These weights replace the softmax and need no parameters; among
    equal keys the nearest gets the most. Products are sums of logsigmoid in float32 or wider.
    """

    label = "Stick-breaking"
    paper = "Tan et al. 2024, arXiv 2410.17980"
    takes_softmax = False

    def layer(self, i: int) -> PositionalLayer:
        return StickBreakingLayer()
