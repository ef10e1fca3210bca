"""What problems have in common, whatever the task."""

import numpy as np
import pytest

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.tasks.task import concatenate, load_task, tasks
from tape_arith.arith.tasks.vocabulary import token


@pytest.mark.parametrize("name", tasks())
def test_prompts_end_with_the_equals_sign(name: str) -> None:
    task, bucket = load_task(name), Bucket(name, 12, 0, "train")
    problems = bucket.problems(0, 300)
    lengths = task.prompt_lengths(bucket.operand_lengths(0, 300))
    starts = np.cumsum(problems.lengths) - problems.lengths
    assert lengths.tolist() == problems.prompt_lengths.tolist()
    for start, length in zip(starts, lengths, strict=True):
        assert problems.tokens[start : start + length].tolist().index(token("=")) == length - 1
    assert task.prompt_lengths(np.zeros((0, 2), np.int64)).shape == (0,)


def test_concatenate() -> None:
    bucket = Bucket("addition", 5, 0, "train")
    spans = [(90, 100), (0, 3), (7, 8)]
    joined = concatenate([bucket.problems(*span) for span in spans])
    assert len(joined.lengths) == 14 and len(joined.tokens) == joined.lengths.sum()
    ones = [bucket.problems(i, i + 1) for span in spans for i in range(*span)]
    for whole, parts in zip(joined, zip(*ones, strict=True), strict=True):
        assert np.array_equal(np.asarray(whole), np.concatenate(parts))


def test_one_part_is_not_copied() -> None:
    problems = Bucket("addition", 5, 0, "train").problems(0, 3)
    assert concatenate([problems]) is problems
