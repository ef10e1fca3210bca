"""FoX: the forgetting transformer."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import (
    INITIAL_STD,
    PositionalEncoding,
    PositionalLayer,
    Setting,
    State,
    Workload,
)
from tape_arith.models.sequences import Sequences


class FoXLayer(PositionalLayer):
    def __init__(self, setting: Setting, b_f: float) -> None:
        super().__init__()
        self.gate = nn.Linear(setting.hidden_size, setting.num_heads)
        nn.init.normal_(self.gate.weight, std=INITIAL_STD)
        nn.init.constant_(self.gate.bias, b_f)

    def bias(self, x: Tensor) -> Tensor:
        """Sum ln f_{i+1} + ... + ln f_t for query t and key i, [B, H, T, T], from x [B, T, D]."""
        weight, bias = self.gate.weight.to(x.dtype), self.gate.bias.to(x.dtype)
        decay = F.logsigmoid(F.linear(x, weight, bias)).cumsum(1).transpose(1, 2)
        return decay[..., None] - decay[..., None, :]

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        # In bfloat16 a sum of a hundred terms loses the last terms, and a gate near 1 becomes 1.
        with torch.autocast(x.device.type, enabled=False):
            bias = self.bias(x.to(torch.promote_types(torch.float32, x.dtype)))
        (heads,) = self.attention(q, k, (v,), seqs, bias=bias)
        return heads, state


class FoX(PositionalEncoding):
    """Forget gates: each token computes a gate that damps attention to all tokens before it.

    b(t, i) = c_t - c_i, c the cumulative sum over tokens of ln f, f_t = sigmoid(W x_t + b), x the
    block's normalized input: exp(q k) is multiplied by f_{i+1} .. f_t. W [H, D] starts from
    N(0, 0.02), b [H] from `b_f`. The "pro" block (output gates, norms, shifted keys) is left out.
    CABLE (arXiv 2503.08067) is this with negated gate weights.

    b_f  first bias of the gates: with 0, as in the authors' code, f is near 1/2 and a key 120
         tokens back starts at a bias of -83; with 5, f = 0.993
    """

    kind = "content"
    paper = "Lin et al. 2025, arXiv 2503.02130"
    needs = Needs(bias="learned", packed=False)

    def __init__(self, setting: Setting, *, b_f: float = 0.0) -> None:
        self.b_f = b_f
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return FoXLayer(self.setting, self.b_f)

    def multiply_adds(self, extent: Workload) -> int:
        """Count the product that computes the gates."""
        return extent.tokens * self.setting.hidden_size * self.setting.num_heads
