"""An answer whose logits are not finite is wrong, however they are ordered."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.scoring import score as module
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.vocabulary import SIZE
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import cpu, small


@pytest.mark.parametrize("other", [0.0, float("nan")])
@pytest.mark.parametrize("value", [1.0, float("inf"), float("nan")])
def test_only_finite_logits_answer(
    value: float, other: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every right token has the logit `value` and the last of the vocabulary has `other`."""
    bucket = Bucket("addition", 2, 0, "evaluation")
    problems, keys = bucket.problems(0, 6), bucket.keys(0, 6)

    def logits(decoder: object, rows: Rows, hardware: object) -> Tensor:
        right = F.one_hot(torch.from_numpy(rows.targets[rows.is_answer]), SIZE).bool()
        result = torch.zeros(right.shape).masked_fill(right, value)
        result[:, -1] = other
        return result

    monkeypatch.setattr(module, "answer_logits", logits)
    decoder = decoder_for(small(trained_digits=2, tested_digits=2), parse("nope"), 0)
    outcome = score(decoder, problems, keys, cpu())
    assert outcome.exact.tolist() == [value == 1.0 and other == 0.0] * 6
