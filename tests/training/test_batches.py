"""The groups that a step's problems go through the decoder in."""

import numpy as np
import pytest

from arith.data.batches import Rows
from arith.data.task import load_task
from arith.training import batches as module
from tests.training.small import small, trainer

STEPS = 40


def groups_of_steps(digits: int, groups: int, device: str = "cpu") -> list[list[Rows]]:
    of = trainer(small(trained_digits=digits, tested_digits=digits, batch_size=256, groups=groups))
    return [list(of.batches.padded(*of.batch(step), device, 1)) for step in range(STEPS)]


@pytest.mark.parametrize(
    ("digits", "groups", "device"), [(8, 4, "cpu"), (33, 4, "cpu"), (40, 4, "cuda")]
)
def test_shapes_come_again(digits: int, groups: int, device: str) -> None:
    """A kernel is made for each: all but the last group of a step have one of a few."""
    steps = groups_of_steps(digits, groups, device)
    shapes = {rows.inputs.shape for step in steps for rows in step[:-1]}
    assert len({width for _, width in shapes}) == len(shapes) <= module.WIDTHS
    assert len({len(step) for step in steps}) == 1
    # A table of positions may end with the longest problem.
    longest = load_task("addition").longest(digits) - 1
    assert max(rows.inputs.shape[1] for step in steps for rows in step) <= longest


@pytest.mark.parametrize(("digits", "groups"), [(8, 4), (40, 4)])
def test_groups_are_about_equal_and_little_of_them_is_padding(digits: int, groups: int) -> None:
    """Two threads take one each, so none may be left with much more than another."""
    computed, real, unequal = 0, 0, []
    for step in groups_of_steps(digits, groups):
        sizes = [rows.inputs.size for rows in step]
        assert len(step) >= groups
        unequal.append(max(sizes) / np.mean(sizes))
        computed += sum(sizes)
        real += int(
            sum(
                rows.prompt_lengths.sum() + rows.answer_tokens.sum() - len(rows.place)
                for rows in step
            )
        )
    assert np.mean(unequal) < 1.2 and max(unequal) < 2
    assert 0.85 < real / computed < 1


def test_no_group_is_large_where_memory_is_short() -> None:
    of = trainer(small(batch_size=64))
    problems, keys = of.batch(0)
    rows = [
        max(len(g.place) for g in of.batches.padded(problems, keys, "cpu", n))
        for n in (1, 2, 4, 8, 64)
    ]
    assert rows == sorted(rows, reverse=True) and rows[-1] == 1
