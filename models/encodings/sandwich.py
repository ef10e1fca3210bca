import torch
from torch import Tensor

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.families.scores import CommonAdditiveBias, Distances


class Sandwich(CommonAdditiveBias):
    """The inner product of two sinusoidal embeddings as a bias, scaled for each head.

    b(t, i) = (H / 8h) (sum_k cos(theta_k (t - i)) - width / 2), h = 1 .. H, theta_k =
    10000^(-2k / width), k = 0 .. width/2 - 1 (appendix E of the paper, as attention-gym's test
    restates it). Subtracting width / 2, the sum at distance 0, does not change the softmax but
    keeps the bias of near keys small (as in NVIDIA's NeMo, 000b931, which sums k = 1 .. width/2).
    Nothing is learned. The bias falls roughly like the logarithm of the distance, with waves.

    width  width of the two embeddings, even
    """

    paper = "Chi et al. 2022, arXiv 2212.10356"
    needs = Needs(bias="fixed")

    def __init__(self, setting: Setting, *, width: int = 128) -> None:
        super().__init__(setting)
        if width < 2 or width % 2:
            raise UsageError(f"sandwich: width must be even and 2 or more, not {width}")
        self.width = width

    def bias(self, distances: Distances) -> Tensor:
        delta = distances.delta.to(torch.float64)
        total = torch.zeros_like(delta)
        # One frequency at a time, because all at once would take 64 times the memory.
        for k in range(self.width // 2):
            total += (delta * 10000.0 ** (-2 * k / self.width)).cos() - 1
        heads = self.setting.num_heads
        ratio = torch.arange(1, heads + 1, device=delta.device, dtype=torch.float64) * 8 / heads
        return (total[:, None] / ratio[:, None, None]).to(distances.delta.dtype)
