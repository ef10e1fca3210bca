"""Carry chains against loops over Python's integers, and the split that is made of long ones."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from tape_arith.arith.data.bucket import CARRY, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.copy import Copy
from tape_arith.arith.tasks.families.numbers import Digits
from tape_arith.arith.tasks.families.tokens import Vocabulary
from tape_arith.arith.tasks.task import Problems

ADDITION = Addition()
# The first 10,000 problems: as in test_bucket.py.
GOLDEN = {
    (8, 0): "65c29ede723f2019d4fcef5ceac7205a0af134b1b8bcd6d19a4ade3d1c4a6ae8",
    (16, 0): "b14911a0501fcf18ee08acbe5325f6f198aa0b20f8205f910ed415d7a1a320ce",
    (80, 3): "58d778f38e725e83558a2c48112412ff54db14c747f6f0202749e438ccacde53",
}

CHOSEN = [(1, 2, 0), (5, 5, 1), (95, 15, 1), (95, 5, 2), (999, 1, 3), (1, 9999, 4), (949, 51, 3)]


def longest_chain(a: int, b: int) -> int:
    """Count by the definition, a place at a time."""
    longest = length = 0
    while a or b:
        total = a % 10 + b % 10
        length = 1 if total >= 10 else length + 1 if total == 9 and length else 0
        longest = max(longest, length)
        a, b = a // 10, b // 10
    return longest


def numbers(digits: Digits) -> list[int]:
    rows = zip(digits.values.tolist(), digits.lengths.tolist(), strict=True)
    return [int("".join(map(str, row[:length]))[::-1]) for row, length in rows]


def as_digits(values: list[int], width: int) -> Digits:
    rows = [[int(digit) for digit in f"{value:0{width}d}"[::-1]] for value in values]
    lengths = np.array([len(str(value)) for value in values])
    return Digits(np.array(rows, dtype=np.uint8), lengths)


@settings(database=None, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**30), st.integers(1, 10**30)), min_size=1))
@example([(a, b) for a, b, _ in CHOSEN])
def test_chains_of_any_numbers(pairs: list[tuple[int, int]]) -> None:
    assert all(longest_chain(a, b) == longest for a, b, longest in CHOSEN)
    # Many nines, or a long chain would hardly ever come up: b is a's complement but for its ends.
    pairs += [(a, max(1, 10 ** len(str(a)) - 1 - a + b % 10)) for a, b in pairs]
    first, second = (as_digits(list(side), 31) for side in zip(*pairs, strict=True))
    expected = [longest_chain(a, b) for a, b in pairs]
    assert ADDITION.carry_chains((first, second)).tolist() == expected


# The split


@pytest.mark.parametrize("fields", GOLDEN)
def test_golden_hashes(fields: tuple[int, int]) -> None:
    max_digits, seed = fields
    assert Bucket("addition", max_digits, seed, CARRY).sha256(10_000) == GOLDEN[fields]


@pytest.mark.parametrize("max_digits", [1, 2, 5, 16])
def test_every_problem_is_right_and_balanced(max_digits: int) -> None:
    bucket, count = Bucket("addition", max_digits, 4, CARRY), 2 * max(max_digits**2, 300)
    problems = bucket.problems(0, count)
    lines = Vocabulary().decode(problems.tokens).split("[EOS]")[:-1]
    longest = ADDITION.carry_chains(bucket.drawn(0, count))
    for line, lengths, chain in zip(
        lines, problems.axis_lengths.tolist(), longest.tolist(), strict=True
    ):
        prompt, answer = line.split("=")
        first, second = prompt.split("+")
        assert first[-1] != "0" and second[-1] != "0"
        assert [len(first), len(second)] == lengths
        a, b = int(first[::-1]), int(second[::-1])
        assert answer == str(a + b)[::-1]
        assert 1 <= chain == longest_chain(a, b) <= max(lengths)
    cells = (problems.axis_lengths - 1) @ [max_digits, 1]
    blocks = cells[: count // max_digits**2 * max_digits**2].reshape(-1, max_digits**2)
    assert (np.sort(blocks, axis=1) == np.arange(max_digits**2)).all()


@pytest.mark.parametrize("cell", [(1, 1), (1, 6), (6, 1), (2, 2), (3, 5), (9, 4)])
def test_the_longest_chain_is_as_long_as_drawn_and_uniform(cell: tuple[int, int]) -> None:
    """Thresholds: one sound stream in 1,000 exceeds them."""
    count, width, most = 9_000, 9, max(cell)
    halves = np.random.default_rng(0).integers(0, 2**32, (count, 2 + width), dtype=np.uint32)
    a, b = ADDITION.draw_hard(np.tile(cell, (count, 1)), halves)
    drawn = 1 + (halves[:, 0].astype(np.int64) * most >> 32)
    assert ADDITION.carry_chains((a, b)).tolist() == drawn.tolist()
    limits = {1: 1e-9, 2: 10.8, 5: 18.5, 6: 20.5, 9: 26.1}
    counts = np.bincount(drawn, minlength=most + 1)[1:]
    assert stats.chisquare(counts).statistic < limits[most]
    # A chain of all places makes an extra digit, always.
    sums = [x + y for x, y, n in zip(numbers(a), numbers(b), drawn, strict=True) if n == most]
    assert sums and all(len(str(total)) == most + 1 for total in sums)


def test_any_slicing_gives_the_same_and_no_other_split_does() -> None:
    bucket = Bucket("addition", 9, 1, CARRY)
    expected = bucket.problems(80, 400)
    parts = [bucket.problems(*span) for span in pairwise([80, 81, 162, 162, 300, 400])]
    joined = Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    for array, part in zip(map(np.asarray, expected), map(np.asarray, joined), strict=True):
        assert np.array_equal(array, part)
    splits = [Bucket("addition", 9, 1, split) for split in ("train", "evaluation")]
    for split in splits:
        assert not np.array_equal(split.axis_lengths(80, 400), expected.axis_lengths)
    keys = [each.keys(0, 500) for each in (bucket, *splits)]
    assert len(np.unique(np.concatenate(keys))) == 1500


def test_a_task_without_hard_problems() -> None:
    with pytest.raises(UsageError, match="copy has no split 'carry'"):
        Bucket("copy", 3, 0, CARRY)
    assert Copy().carry_chains(as_digits([1], 1)) is None
