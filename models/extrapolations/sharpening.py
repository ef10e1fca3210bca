"""Multiply the scores of far queries at test time: `tape+logn`."""

import math

from torch import Tensor

from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.extrapolations.extrapolation import Extrapolation
from tape_arith.models.sequences import Sequences


class LogN(Extrapolation):
    """Multiply the scores of queries with more than L0 keys by log n, because a softmax spreads.

    q of token t is multiplied by max(1, ln n / ln L0), n = t + 1 the number of its keys, where it
    meets keys; decoder.py says what that is for each kind of encoding. The paper, too, scales
    scores by a logarithm at test time. A decoder with `attention_scale=log` has learned its own
    factor and refuses this one.
    """

    name = "logn"
    label = "log n"
    paper = "Puvvada et al. 2025, arXiv 2504.08719"

    def __call__(self, seqs: Sequences, setting: Setting) -> Tensor:
        """Return the factor of each query's scores, float64 [1, T, 1]."""
        return (seqs.log_keys / math.log(setting.trained_length)).clamp_min(1.0)

    def why_unsupported(self, encoding: PositionalEncoding) -> str | None:
        if encoding.takes_softmax:
            return None
        return f"multiplies the scores of a softmax; {type(encoding).__name__} takes none"

    def apply(self, encoding: PositionalEncoding) -> None:
        encoding.query_scaling = self
