import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import INITIAL_STD, Setting, check_least, constant
from tape_arith.models.families.scores import CommonAdditiveBias, Distances

BUCKETS = 32
EXACT = BUCKETS // 2


def first_distances(max_distance: int) -> list[int]:
    """Return the least distance of each bucket, in integers, because logarithms may round.

    >>> first_distances(128)[15:]
    [15, 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    """
    distances, distance = list(range(EXACT)), EXACT
    far = BUCKETS - EXACT
    for step in range(far):
        # 16 ln(distance / 16) / ln(max_distance / 16) >= step, both sides as a power.
        while distance**far * EXACT**step < max_distance**step * EXACT**far:
            distance += 1
        distances.append(distance)
    return distances


class T5(CommonAdditiveBias):
    """A learned bias per head and bucket of distances; buckets widen with the distance.

    b(t, i) = r_h[bucket(t - i)] of 32 buckets: distances d = 0 .. 15 have one each, larger ones
    bucket 16 + floor(16 ln(d / 16) / ln(max_distance / 16)), at most 31 (section 2.1 of the paper
    and its authors' code, whose default splits the buckets into two directions). The table [32, H],
    shared by all layers, starts from N(0, 0.02) (theirs: N(0, D^-1/2)), without weight decay.
    Unlike in T5, scores are divided by sqrt(K). Buckets that begin beyond L0 are never trained:
    at L0 = 124 bucket 31 (113 and more) covers half of the tested distances.

    max_distance  where widening ends; the last bucket begins a little below it
    """

    paper = "Raffel et al. 2019, arXiv 1910.10683"
    no_decay = ("table",)
    computes_with_index = False  # a table's row for each distance

    def __init__(self, setting: Setting, *, max_distance: int = 128) -> None:
        super().__init__(setting)
        check_least("t5", EXACT + 1, max_distance=max_distance)
        self.first = first_distances(max_distance)
        self.table = nn.Parameter(torch.randn(BUCKETS, setting.num_heads) * INITIAL_STD)

    def buckets(self, delta: Tensor) -> Tensor:
        """Look up the bucket of each distance: int64, the shape of `delta`."""
        return torch.searchsorted(constant(self.first, delta), delta, right=True) - 1

    def trained_reach(self) -> dict[str, int]:
        # A sequence of n tokens, of which the last is no input, has distances up to n - 2.
        untrained = [first for first in self.first if first > self.setting.trained_length - 2]
        return {"tokens": untrained[0] + 1} if untrained else {}

    def bias(self, distances: Distances) -> Tensor:
        bias = F.embedding(self.buckets(distances.delta), self.table.to(distances.delta.dtype))
        return bias.permute(0, 3, 1, 2).contiguous()
