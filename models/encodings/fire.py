"""FIRE: functional interpolation for relative positions."""

import torch
from torch import Tensor, nn

from tape_arith.models.encoding import PositionalLayer, Setting, Workload, check_least
from tape_arith.models.errors import UsageError
from tape_arith.models.families.scores import AdditiveBias, AdditiveBiasLayer, Distances

EPSILON = 1e-6


class FIRELayer(AdditiveBiasLayer):
    def __init__(self, num_heads: int, width: int, init_l: float) -> None:
        super().__init__()
        self.init_l = init_l
        self.c = nn.Parameter(torch.tensor(0.1))
        self.l_multiplier = nn.Parameter(torch.tensor(1.0))
        self.hidden = nn.Linear(1, width)
        self.output = nn.Linear(width, num_heads)

    def psi(self, x: Tensor) -> Tensor:
        return torch.log(self.c.abs() * x + 1)

    def bias(self, distances: Distances) -> Tensor:
        threshold = (self.l_multiplier * self.init_l).abs()
        normalizer = self.psi(torch.maximum(distances.query, threshold)) + EPSILON
        distance = (self.psi(distances.delta) / normalizer).to(self.hidden.weight.dtype)
        return self.output(self.hidden(distance[..., None]).relu()).permute(0, 3, 1, 2)


class FIRE(AdditiveBias):
    """A learned function of the log-distance, normalized by the query's index beyond L.

    b(t, i) = f(psi(t - i) / psi(max(t, L))), psi(x) = ln(|c| x + 1), f an MLP 1-width-H with
    ReLU and biases (Eq. 6 and 7 of the paper); f, c (first 0.1) and L (first init_l) are learned.
    FIRE is not shift-invariant once t > L.

    init_l  first value of L; by default L0, better than L0 / 2 in distribution at mini (99.8 and
            99.6 %, one seed); the published baselines' 512 never interpolates at the lengths of
            addition
    width   hidden width of f
    """

    paper = "Li et al. 2023, arXiv 2310.04418"
    inert = ("output.bias",)  # the same for all keys, so the softmax cancels it

    def __init__(self, setting: Setting, *, init_l: float | None = None, width: int = 32) -> None:
        check_least("fire", 1, width=width)
        if init_l is not None and init_l <= 0:
            raise UsageError(f"fire: init_l must be more than 0, not {init_l:g}")
        self.init_l = float(setting.trained_length) if init_l is None else init_l
        self.width = width
        super().__init__(setting)

    def layer(self, i: int) -> PositionalLayer:
        return FIRELayer(self.setting.num_heads, self.width, self.init_l)

    def multiply_adds(self, extent: Workload) -> int:
        """Count the MLP over all distances; c and L act on its input."""
        return extent.distances * self.width * (1 + self.setting.num_heads)
