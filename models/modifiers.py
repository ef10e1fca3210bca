"""Change the indices of an encoding in training, by a name before its own: `aug-rope`.

A modifier is a subclass of `PositionalEncoding` with a `name`. A modified class derives from the
modifier, then from the encoding, and has the options of both.
"""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from tape_arith.models.encoding import MatMul, PositionalEncoding, Setting, Workload
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences, random_words

_STREAM = b"aug"


class PosAug(PositionalEncoding):
    """Indices times alpha ~ U[1, a] in training, one alpha per sequence; plain indices in test.

    The key of the sequence, or of the step, draws alpha, and joined encodings share it. In training
    an index is then a real number of up to a (L0 - 1), so encodings that look up their index in a
    table refuse it. A fixed a keeps the tested length out of training.

    a    the largest alpha, more than 1
    per  one alpha per sequence, or one per step for its whole batch, as in the paper
    """

    name = "aug"
    label = "PosAug"
    kind = "randomized"
    paper = "Position Augmentation 2026, OpenReview hKvffID66N"

    def __init__(
        self,
        setting: Setting,
        *,
        a: float = 2.0,
        per: Literal["sequence", "step"] = "sequence",
        **options: Any,
    ) -> None:
        if a <= 1:
            raise UsageError(f"{self.name}: a must be more than 1, not {a:g}")
        super().__init__(setting, **options)
        if not self.computes_with_index:
            _, _, base, *_ = type(self).__mro__
            raise UsageError(
                f"{self.name}- scales indices, and {base.__name__} does not compute with its "
                "index: it looks it up, draws it at random or never reads it"
            )
        self.stretch, self.per_step = a, per == "step"
        self.stream = self.stream or _STREAM  # so that joined encodings keep their key

    def indices(self, seqs: Sequences) -> Tensor:
        index = super().indices(seqs)
        if not self.training:
            return index
        key = torch.zeros_like(seqs.key) + seqs.batch_key if self.per_step else seqs.key
        uniform = random_words(key ^ int.from_bytes(_STREAM), 1)[:, 0].double() / 2**32
        return index * seqs.per_token(1 + (self.stretch - 1) * uniform)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        """List the encoding's products in training, with separate distances for every row."""
        return super().products(extent._replace(distances=extent.pairs))
