import torch
from torch import Tensor, nn

from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, Setting, State
from tape_arith.models.sequences import Sequences

TAPS = 4


class CanonLayer(PositionalLayer):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        shape = (TAPS, 3, setting.num_heads, setting.head_dim)
        self.taps = nn.Parameter(torch.empty(shape).uniform_(-0.5, 0.5))

    def attend(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: State, seqs: Sequences
    ) -> tuple[Tensor, State]:
        qkv = torch.stack((q, k, v), 2)  # [B, T, 3, H, K]
        taps = self.taps.to(qkv.dtype)
        mixed = qkv + qkv * taps[0]
        for back in range(1, TAPS):
            # Rolled tokens of the end, or of the sequence packed before, are masked.
            inside = (seqs.place >= back)[..., None, None, None]
            mixed = mixed + qkv.roll(back, 1) * inside * taps[back]
        q, k, v = mixed.unbind(2)
        return super().attend(x, q, k, v, state, seqs)


class Canon(PositionalEncoding):
    """Queries, keys and values each plus a causal convolution over four tokens (Canon-B).

    y_t <- y_t + sum_j w_j * y_{t-j}, j = 0 .. 3, for each of y = q, k, v. The filter has a weight
    for each channel: w_j, `taps[j]` [3, H, K], is that of the token j places back, w_0 that of the
    token itself; before the first token y is zero. No bias, activation or rotation. Taps start
    uniform in [-1/2, 1/2], torch's default, which the author prefers to N(0, 0.02).

    This code agrees with the author's (facebookresearch/PhysicsLM4, lingua_modified, 924678b),
    where the taps are in reverse order. His Canon-A (the input of attention), C and D (the input
    and the inside of the MLP) change more than attention and are left out. He warns that length
    generalization is often unstable: it varies with the seed and the order of the data, so compare
    several seeds.
    """

    kind = "content"
    paper = "Allen-Zhu 2025, arXiv 2512.17351"

    def layer(self, i: int) -> PositionalLayer:
        return CanonLayer(self.setting)
