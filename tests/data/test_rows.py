"""Padded rows and groups against a plain loop over problems."""

from itertools import pairwise
from unittest.mock import patch

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tape_arith.arith.data import rows as batches
from tape_arith.arith.data.rows import (
    Integers,
    Rows,
    groups_of_few_shapes,
    groups_of_tokens,
    pack,
    pad,
)
from tape_arith.arith.tasks.families.tokens import EOS, PAD
from tape_arith.arith.tasks.task import Problems

SOME = settings(max_examples=40, database=None, deadline=None)
SHAPES = st.lists(st.tuples(st.integers(2, 12), st.integers(1, 9)), min_size=1, max_size=25)


def made(shapes: list[tuple[int, int]]) -> tuple[Problems, list[list[int]]]:
    """Problems of so many prompt and answer tokens, and the tokens of each."""
    generator = np.random.Generator(np.random.Philox(7))
    rows = [[*generator.integers(4, 19, p + a - 1).tolist(), EOS] for p, a in shapes]
    prompts = np.array([p for p, _ in shapes], dtype=np.int64)
    problems = Problems(
        tokens=np.concatenate([np.array(row, dtype=np.uint8) for row in rows]),
        lengths=np.array([len(row) for row in rows], dtype=np.int64),
        prompt_lengths=prompts,
        axis_lengths=np.stack([prompts, prompts], axis=1),
        final_lengths=prompts + 20,
    )
    return problems, rows


def keys_of(count: int) -> Integers:
    return np.arange(count, dtype=np.int64) * 7 + 3


def two_thirds(shapes: list[tuple[int, int]]) -> Integers:
    """Return indices of two thirds of the problems, in another order."""
    place = np.random.Generator(np.random.Philox(len(shapes))).permutation(len(shapes))
    return place[: max(1, len(place) * 2 // 3)]


def assert_rows(
    rows: Rows, problems: Problems, all_tokens: list[list[int]], width: int | None = None
) -> None:
    """Each row is its problem, shifted by one, padded to `width` or the longest of its group."""
    if width is None:
        width = max(len(all_tokens[place]) for place in rows.source_index) - 1
    assert rows.inputs.shape == rows.targets.shape == rows.is_answer.shape
    assert rows.inputs.shape == (len(rows.source_index), width)
    for row, place in enumerate(rows.source_index):
        tokens = all_tokens[place]
        prompt = int(problems.prompt_lengths[place])
        padding = [PAD] * (width + 1 - len(tokens))
        assert rows.inputs[row].tolist() == [*tokens, *padding][:-1]
        assert rows.targets[row].tolist() == [*tokens, *padding][1:]
        # The token after the prompt's last one is the first that is scored.
        scored = [prompt <= column + 1 < len(tokens) for column in range(width)]
        assert rows.is_answer[row].tolist() == scored
        assert rows.targets[row][rows.is_answer[row]].tolist() == tokens[prompt:]
        assert rows.prompt_lengths[row] == prompt
        assert rows.final_lengths[row] == problems.final_lengths[place]
        assert rows.keys[row] == keys_of(len(all_tokens))[place]
        assert rows.answer_tokens[row] == sum(scored)


@SOME
@given(SHAPES)
def test_pad(shapes: list[tuple[int, int]]) -> None:
    problems, tokens = made(shapes)
    rows = pad(problems, keys_of(len(shapes)), place := two_thirds(shapes))
    assert np.array_equal(rows.source_index, place)
    assert_rows(rows, problems, tokens)


@SOME
@given(SHAPES, st.integers(0, 99), st.integers(0, 9))
def test_pack(shapes: list[tuple[int, int]], room: int, longer: int) -> None:
    (problems, tokens), keys, place = made(shapes), keys_of(len(shapes)), two_thirds(shapes)
    used = int((problems.lengths[place] - 1).sum())
    bound = int(problems.lengths[place].max()) - 1 + longer
    rows = pack(problems, keys, place, used + room, bound)
    assert rows.inputs.shape == rows.targets.shape == rows.is_answer.shape == (1, used + room)
    assert rows.starts is not None and rows.starts.dtype == np.int32
    assert rows.starts[0] == 0 and rows.starts[-1] == used + room
    lengths = np.diff(rows.starts)
    assert lengths.min() >= 0 and lengths.max() <= rows.longest == bound
    assert len(lengths) == len(rows.final_lengths) == len(rows.keys)
    padded = pad(problems, keys, place)
    for row, at in enumerate(place):
        span = slice(rows.starts[row], rows.starts[row + 1])
        for field in ("inputs", "targets", "is_answer"):
            alone = getattr(padded, field)[row, : len(tokens[at]) - 1]
            assert np.array_equal(getattr(rows, field)[0, span], alone)
    for field in ("prompt_lengths", "answer_tokens"):
        assert np.array_equal(getattr(rows, field), getattr(padded, field))
    for field in ("final_lengths", "keys"):
        assert np.array_equal(getattr(rows, field)[: len(place)], getattr(padded, field))
    assert not rows.is_answer[0, used:].any() and (rows.inputs[0, used:] == PAD).all()


@SOME
@example([(4, 2)], 1, 20, {3, 6})
@example([(4, 2)], 3, 20, {3, 6})
@given(SHAPES, st.integers(1, 9), st.integers(1, 60), st.sets(st.integers(1, 19)))
def test_groups_of_few_shapes(
    shapes: list[tuple[int, int]], count: int, most: int, some: set[int]
) -> None:
    problems, tokens = made(shapes)
    widths = np.array(sorted({*some, 20}))
    groups = list(groups_of_few_shapes(problems, keys_of(len(shapes)), count, most, widths))
    assert 1 <= len(groups) <= count
    places = np.concatenate([group.source_index for group in groups])
    assert sorted(places.tolist()) == list(range(len(shapes)))
    lengths = problems.lengths[places].tolist()
    assert lengths == sorted(lengths, reverse=True)
    for group in groups:
        longest = int(problems.lengths[group.source_index].max()) - 1
        width = min(w for w in widths.tolist() if w >= longest)
        assert_rows(group, problems, tokens, width)
        rows = max(1, round(most / width))
        # The last one takes what is left: fewer rows, or more where there may be no other group.
        assert len(group.source_index) == rows or group is groups[-1]
        assert len(group.source_index) <= rows or len(groups) == count


@SOME
@given(SHAPES, st.integers(1, 120), st.sets(st.integers(0, 24)))
def test_groups_of_tokens(shapes: list[tuple[int, int]], most: int, chosen: set[int]) -> None:
    problems, tokens = made(shapes)
    keys = keys_of(len(shapes))
    among = np.array(sorted(chosen & set(range(len(shapes)))), dtype=np.int64)
    for some, expected in ((None, list(range(len(shapes)))), (among, among.tolist())):
        groups = list(groups_of_tokens(problems, keys, most, some))
        assert sorted(place for group in groups for place in group.source_index) == expected
        sizes = [
            len(group.source_index) * int(problems.lengths[group.source_index].max())
            for group in groups
        ]
        for group, size in zip(groups, sizes, strict=True):
            assert_rows(group, problems, tokens)
            assert size <= most or len(group.source_index) == 1
        # No group could have taken the first row of the next as well.
        for group, after in pairwise(groups):
            width = int(problems.lengths[after.source_index[0]])
            assert (len(group.source_index) + 1) * width > most


@SOME
@given(SHAPES, st.integers(1, 120))
def test_packed_groups_of_tokens(shapes: list[tuple[int, int]], most: int) -> None:
    problems, _ = made(shapes)
    with patch.object(batches, "CAPACITY_STEP", 16):
        groups = list(groups_of_tokens(problems, keys_of(len(shapes)), most, packed=True))
    assert sorted(p for group in groups for p in group.source_index) == list(range(len(shapes)))
    used = [int((problems.lengths[group.source_index] - 1).sum()) for group in groups]
    filled = [group.inputs.size for group in groups]
    assert all(size == max(most, n) for size, n in zip(filled[:-1], used[:-1], strict=True))
    # What is left over is not filled up to a whole group.
    assert used[-1] <= filled[-1] <= max(used[-1], min(most, used[-1] + 15))
