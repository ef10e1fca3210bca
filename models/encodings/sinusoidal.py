import torch
from torch import Tensor

from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


class Sinusoidal(PositionalEncoding):
    """Sines and cosines of the index, added to the token embeddings.

    sqrt(D) x_t + [sin(w_k t); cos(w_k t)], w_k = 10000^(-2k/D), k = 0 .. D/2 - 1
    (sections 3.4 and 3.5 of the paper, where sine and cosine alternate: a permutation). At mini
    sqrt(D) x_t has the size 0.23 and the sines 0.71; the paper's tokens have the size 1. Tokens of
    size 1, or sines of 0.014 with tokens of 0.02, do not fit mini in 1,000 steps (2 and 72 %).
    """

    kind = "absolute"
    computes_with_index = True
    paper = "Vaswani et al. 2017, arXiv 1706.03762"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        if setting.hidden_size % 2:
            raise UsageError(f"sinusoidal needs an even hidden_size, not {setting.hidden_size}")

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        half = self.setting.hidden_size // 2
        k = torch.arange(half, dtype=torch.float64, device=index.device)
        # Computed in float64, then rounded: in bfloat16 the indices 3000 and 3001 are equal.
        angles = index.to(torch.float64)[..., None] * 10000.0 ** (-k / half)
        dtype = torch.promote_types(torch.float32, x.dtype)
        sines = torch.cat((angles.sin(), angles.cos()), -1).to(dtype)
        return (x.to(dtype) * self.setting.hidden_size**0.5 + sines).to(x.dtype)
