"""The groups that a step's problems go through the decoder in."""

import numpy as np
import pytest

from tape_arith.arith.data.rows import Rows
from tape_arith.arith.tasks.task import load_task
from tests.helpers.small_training import small, trainer

STEPS = 15


def groups_of_steps(digits: int, groups: int, device: str = "cpu") -> list[list[Rows]]:
    of = trainer(small(trained_digits=digits, tested_digits=digits, batch_size=256, groups=groups))
    return [list(of.batches.padded(*of.batches.problems(step), device, 1)) for step in range(STEPS)]


@pytest.mark.parametrize(
    ("digits", "groups", "device"), [(8, 4, "cpu"), (33, 4, "cpu"), (40, 4, "cuda")]
)
def test_shapes_come_again(digits: int, groups: int, device: str) -> None:
    """A kernel is made for each: all but the last group of a step have one of a few."""
    steps = groups_of_steps(digits, groups, device)
    shapes = {rows.inputs.shape for step in steps for rows in step[:-1]}
    assert len({width for _, width in shapes}) == len(shapes) <= 32
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
                rows.prompt_lengths.sum() + rows.answer_tokens.sum() - len(rows.source_index)
                for rows in step
            )
        )
    assert np.mean(unequal) < 1.2 and max(unequal) < 2
    assert 0.85 < real / computed < 1


@pytest.mark.parametrize(("digits", "size"), [(40, 256), (40, 2), (40, 24), (8, 4)])
def test_groups_shrink_where_memory_is_short(digits: int, size: int) -> None:
    """By as much as was asked for, or to one row; however long this batch happens to be."""
    of = trainer(small(trained_digits=digits, tested_digits=digits, batch_size=size, groups=4))
    for step in range(5):
        batch = of.batches.problems(step)
        usual = of.batches._tokens_a_group(
            size, max(4, len(list(of.batches.padded(*batch, "cpu", 1))))
        )
        for finer in (2, 4, 8, 16, 2**12):
            groups = list(of.batches.padded(*batch, "cpu", finer))
            assert sorted(place for rows in groups for place in rows.source_index) == list(
                range(size)
            )
            for rows in groups:
                assert rows.inputs.size <= 1.5 * usual / finer or len(rows.source_index) == 1
        assert max(len(rows.source_index) for rows in groups) == 1


def test_a_process_may_have_no_rows() -> None:
    of = trainer(small(batch_size=4))
    problems, keys = of.batches.problems(0)
    none = problems._replace(tokens=problems.tokens[:0], lengths=problems.lengths[:0])
    assert not list(of.batches.padded(none, keys[:0], "cpu", 1))
    assert not list(of.batches.packed(none, keys[:0], 1))
