import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import INITIAL_STD, PositionalLayer, Setting, State, Workload
from tape_arith.models.families.scores import FromScores, ScoresLayer

PARTS = 6


class WallLayer(ScoresLayer):
    def __init__(self, setting: Setting, b: float) -> None:
        super().__init__()
        self.gate = nn.Linear(setting.hidden_size, setting.width)
        nn.init.normal_(self.gate.weight, std=INITIAL_STD)
        nn.init.constant_(self.gate.bias, b)

    def scores(self, x: Tensor, q: Tensor, k: Tensor, state: State) -> Tensor:
        weight, bias = self.gate.weight.to(x.dtype), self.gate.bias.to(x.dtype)
        gates = F.logsigmoid(F.linear(x, weight, bias)).view_as(q)
        q, k = (q * q.shape[-1] ** -0.5).transpose(1, 2), k.transpose(1, 2)
        p = gates.cumsum(1).transpose(1, 2)  # [B, H, T, K]
        # exp(p_t) exp(-p_i) of the whole row would overflow. So queries are taken in parts, and an
        # earlier key reaches one by way of the part's first token: neither exponent is positive.
        parts = min(PARTS, p.shape[2])
        rows, start = [], 0
        for qs, ks, ps in zip(*(y.tensor_split(parts, 2) for y in (q, k, p)), strict=True):
            first, end = ps[:, :, :1], start + ps.shape[2]
            earlier = (first - p).clamp_max(0).exp() * k
            far = (qs * (ps - first).exp()) @ earlier.transpose(-1, -2)
            among = (ps[:, :, :, None] - ps[:, :, None]).clamp_max(0).exp()
            near = (qs[:, :, :, None] * among * ks[:, :, None]).sum(-1)
            rows.append(torch.cat((far[..., :start], near, far[..., end:]), -1))
            start = end
        return torch.cat(rows, 2)


class Wall(FromScores):
    """Forget gates for each channel of a head, which take the place of rotations.

    s(t, i) = sum_n q_tn k_in exp(P_tn - P_in) / sqrt(K), P_t = g_1 + ... + g_t, g_t = ln sigmoid(W
    x_t + b), x the block's normalized input: channel n of an earlier key is damped by the gates of
    the tokens i + 1 .. t, the query's own included and the key's excluded. FoX adds ln f to a score
    and so forbids a forgotten key; here its score becomes 0. W [HK, D], from N(0, 0.02), adds 14 %
    to the parameters of the paper's size.

    The formula is that of the authors' layer (flash-linear-attention, layers/wall_attn.py,
    189b286). Left out are its optional scalar gate, and the soft clamp of g to -0.86 or more that
    their kernels need; here no gate overflows, however strong.

    b  first bias of the gates: with 8, as in the authors' code, a gate is 0.9997, so that the model
       starts nearly as NoPE
    """

    paper = "Tilde Research 2026, blog.tilderesearch.com/blog/wall-attn"

    def __init__(self, setting: Setting, *, b: float = 8.0) -> None:
        self.b = b
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return WallLayer(self.setting, self.b)

    def multiply_adds(self, extent: Workload) -> int:
        """Count the product that computes the gates."""
        return extent.tokens * self.setting.hidden_size * self.setting.width
