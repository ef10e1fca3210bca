"""T5's relative bias: a learned number for each head and bucket of distances.

Legend: B batch, T tokens, H heads.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tape_arith.models.encoding import INITIAL_STD, Setting, constant
from tape_arith.models.errors import UsageError
from tape_arith.models.families.additive_bias import CommonAdditiveBias, Distances

BUCKETS = 32
EXACT = BUCKETS // 2


def first_distances(max_distance: int) -> list[int]:
    """Return the least distance of each bucket, in whole numbers since logarithms may round.

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
    """A learned bias for each head and bucket of distances, wider the farther they lie.

    b(t, i) = r_h[bucket(t - i)] of 32 buckets: 0 .. 15 are distances of their own, then bucket
    16 + floor(16 ln(d / 16) / ln(max_distance / 16)), at most 31 (section 2.1 of the paper and
    its authors' code). All 32 look back, for nothing else is seen; the code's default splits them
    into two directions. Scores keep their 1 / sqrt(K), which T5 does without. The table [32, H]
    starts from N(0, 0.02) (theirs: N(0, D^-1/2)) and is shared by all layers, as in T5. Training
    and test are alike. Distances of max_distance and more share the last bucket; it and those
    before it are hardly trained where L0 is shorter: at L0 = 124, bucket 31 (113 and more) covers
    half of the tested distances. `max_distance` = L1 is the variant worth a row.
    """

    kind = "relative bias"
    paper = "Raffel et al. 2019, arXiv 1910.10683"
    no_decay = ("table",)

    def __init__(self, setting: Setting, *, max_distance: int = 128) -> None:
        super().__init__(setting)
        if max_distance <= EXACT:
            raise UsageError(f"t5: max_distance must be more than {EXACT}, not {max_distance}")
        self.first = first_distances(max_distance)
        self.table = nn.Parameter(torch.randn(BUCKETS, setting.num_heads) * INITIAL_STD)

    def buckets(self, delta: Tensor) -> Tensor:
        """Look up the bucket of each distance: int64, the shape of `delta`."""
        return torch.searchsorted(constant(self.first, delta), delta, right=True) - 1

    def bias(self, distances: Distances) -> Tensor:
        bias = F.embedding(self.buckets(distances.delta), self.table.to(distances.delta.dtype))
        return bias.permute(0, 3, 1, 2).contiguous()
