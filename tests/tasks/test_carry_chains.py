"""Carry chains against loops over Python's integers, and the split that is made of long ones."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape_arith.arith.data.bucket import CARRY, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks import vocabulary
from tape_arith.arith.tasks.carry_chains import longest_chains, operands_with_chains
from tape_arith.arith.tasks.task import Digits, Problems, Task, load_task

# The first 10,000 problems: as in test_bucket.py.
GOLDEN = {
    (8, 0): "65c29ede723f2019d4fcef5ceac7205a0af134b1b8bcd6d19a4ade3d1c4a6ae8",
    (16, 0): "b14911a0501fcf18ee08acbe5325f6f198aa0b20f8205f910ed415d7a1a320ce",
    (80, 3): "58d778f38e725e83558a2c48112412ff54db14c747f6f0202749e438ccacde53",
}


def chains(a: int, b: int) -> list[int]:
    """The lengths of all carry chains of a + b, by the definition."""
    found: list[int] = []
    passing = False
    while a or b:
        generates, passes = a % 10 + b % 10 >= 10, a % 10 + b % 10 == 9 and passing
        if generates:
            found.append(1)
        elif passes:
            found[-1] += 1
        passing = generates or passes
        a, b = a // 10, b // 10
    return found


def numbers(digits: Digits) -> list[int]:
    rows = zip(digits.values.tolist(), digits.lengths.tolist(), strict=True)
    return [int("".join(map(str, row[:length]))[::-1]) for row, length in rows]


def as_digits(values: list[int], width: int) -> Digits:
    rows = [[int(digit) for digit in f"{value:0{width}d}"[::-1]] for value in values]
    lengths = np.array([len(str(value)) for value in values])
    return Digits(np.array(rows, dtype=np.uint8), lengths)


def halves(count: int, width: int, seed: int = 0) -> npt.NDArray[np.uint32]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 2**32, (count, 2 + width), dtype=np.uint32)


def made(lengths: tuple[int, int], count: int, width: int, seed: int = 0) -> tuple[Digits, Digits]:
    return operands_with_chains(np.tile(lengths, (count, 1)), halves(count, width, seed))


@pytest.mark.parametrize(
    ("a", "b", "longest"),
    [(1, 2, 0), (5, 5, 1), (95, 15, 1), (95, 5, 2), (999, 1, 3), (1, 9999, 4), (949, 51, 3)],
)
def test_chains_of_chosen_numbers(a: int, b: int, longest: int) -> None:
    assert max(chains(a, b), default=0) == longest
    assert longest_chains(as_digits([a], 5), as_digits([b], 5)).tolist() == [longest]


@settings(database=None, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**30), st.integers(1, 10**30)), min_size=1))
def test_chains_of_any_numbers(pairs: list[tuple[int, int]]) -> None:
    # Many nines, or a long chain would hardly ever come up: b is a's complement but for its ends.
    pairs += [(a, max(1, 10 ** len(str(a)) - 1 - a + b % 10)) for a, b in pairs]
    first, second = (as_digits(list(side), 31) for side in zip(*pairs, strict=True))
    expected = [max(chains(a, b), default=0) for a, b in pairs]
    assert longest_chains(first, second).tolist() == expected


# The split


@pytest.mark.parametrize("fields", GOLDEN)
def test_golden_hashes(fields: tuple[int, int]) -> None:
    max_digits, seed = fields
    assert Bucket("addition", max_digits, seed, CARRY).sha256(10_000) == GOLDEN[fields]


@pytest.mark.parametrize("max_digits", [1, 2, 5, 16, 80])
def test_every_problem_is_right_and_balanced(max_digits: int) -> None:
    bucket, count = Bucket("addition", max_digits, 4, CARRY), 2 * max(max_digits**2, 300)
    problems = bucket.problems(0, count)
    lines = vocabulary.decode(problems.tokens).split("[EOS]")[:-1]
    longest = load_task("addition").carry_chains(*bucket.operands(0, count))
    for line, lengths, chain in zip(
        lines, problems.operand_lengths.tolist(), longest.tolist(), strict=True
    ):
        prompt, answer = line.split("=")
        first, second = prompt.split("+")
        assert first[-1] != "0" and second[-1] != "0"
        assert [len(first), len(second)] == lengths
        a, b = int(first[::-1]), int(second[::-1])
        assert answer == str(a + b)[::-1]
        assert 1 <= chain == max(chains(a, b)) <= max(lengths)
    cells = (problems.operand_lengths - 1) @ [max_digits, 1]
    for block in range(count // max_digits**2):
        span = cells[block * max_digits**2 : (block + 1) * max_digits**2]
        assert sorted(span.tolist()) == list(range(max_digits**2))


CELLS = [(1, 1), (1, 6), (6, 1), (2, 2), (3, 5), (6, 6), (9, 4)]


@pytest.mark.parametrize("cell", CELLS)
def test_the_longest_chain_is_as_long_as_drawn_and_uniform(cell: tuple[int, int]) -> None:
    """Thresholds: one sound stream in 1,000 exceeds them."""
    count, width, most = 9_000, 9, max(cell)
    a, b = made(cell, count, width)
    drawn = 1 + (halves(count, width)[:, 0].astype(np.int64) * most >> 32)
    assert longest_chains(a, b).tolist() == drawn.tolist()
    expected = count / most
    square = ((np.bincount(drawn, minlength=most + 1)[1:] - expected) ** 2 / expected).sum()
    assert square < {1: 1e-9, 2: 10.8, 5: 18.5, 6: 20.5, 9: 26.1}[most]
    # A chain of all places makes an extra digit, always.
    whole = [(x, y) for x, y, n in zip(numbers(a), numbers(b), drawn, strict=True) if n == most]
    assert all(len(str(x + y)) == most + 1 for x, y in whole) and whole


def test_a_chain_starts_wherever_it_fits() -> None:
    a, b = made((4, 6), 12_000, 6)
    starts: dict[int, set[int]] = {}
    for x, y in zip(numbers(a), numbers(b), strict=True):
        sums = [int(c) + int(d) for c, d in zip(f"{x:06d}"[::-1], f"{y:06d}"[::-1], strict=True)]
        longest = max(chains(x, y))
        for place in range(7 - longest):
            follows = sums[place + 1 : place + longest]
            if sums[place] > 9 and all(s == 9 for s in follows):
                starts.setdefault(longest, set()).add(place)
    # Past the four digits of the first operand nothing can start; nor so high that it ends outside.
    expected = {length: set(range(min(3, 6 - length) + 1)) for length in range(1, 7)}
    assert starts == expected


def chi_square(counts: npt.NDArray[np.int64]) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def test_digits_outside_of_the_chain_are_uniform() -> None:
    """Problems with the longest chain over the upper five of eight places: of the places below it
    all pairs are allowed, for no chain of three places could be too long; 99 degrees of freedom."""
    a, b = made((8, 8), 60_000, 8)
    sums = a.values + b.values
    upper = (sums[:, 3] > 9) & (sums[:, 4:] == 9).all(axis=1)
    for place in range(3):
        pairs = a.values[upper, place].astype(int) * 10 + b.values[upper, place]
        assert len(pairs) > 1_000
        assert chi_square(np.bincount(pairs, minlength=100)) < 148.3
    generating = a.values[upper, 3].astype(int) * 10 + b.values[upper, 3]
    counts = np.bincount(generating, minlength=100)
    assert (counts > 0).sum() == 45 and chi_square(counts[counts > 0]) < 78.8
    passing = np.bincount(a.values[upper, 5], minlength=10)
    assert chi_square(passing) < 27.9
    leading = np.bincount(a.values[upper, 7], minlength=10)
    assert leading[0] == leading[9] == 0 and chi_square(leading[1:9]) < 24.4


def test_the_place_after_the_chain_is_uniform_but_does_not_pass_on() -> None:
    drawn = halves(60_000, 8)[:, :2].astype(np.int64) * np.array([8, 6]) >> 32
    a, b = made((8, 8), 60_000, 8)
    after = (drawn == [2, 2]).all(axis=1)  # a chain of three places from the third on
    counts = np.bincount(a.values[after, 5].astype(int) * 10 + b.values[after, 5], minlength=100)
    nines = np.arange(9, 91, 9)
    assert counts[nines].sum() == 0 and chi_square(np.delete(counts, nines)) < 136.0


def test_one_digit_and_one_digit_offer_the_sums_that_carry() -> None:
    a, b = made((1, 1), 2_000, 3)
    found = set(zip(numbers(a), numbers(b), strict=True))
    assert found == {(x, y) for x in range(1, 10) for y in range(1, 10) if x + y > 9}


def test_any_slicing_gives_the_same() -> None:
    bucket = Bucket("addition", 9, 1, CARRY)
    whole = bucket.problems(80, 400)
    parts = [bucket.problems(*span) for span in pairwise([80, 81, 162, 162, 300, 400])]
    joined = Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    for ours, theirs in zip(whole, joined, strict=True):
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    assert numbers(bucket.operands(80, 400)[0])[5:9] == numbers(bucket.operands(85, 89)[0])


def test_it_shares_nothing_with_the_other_splits() -> None:
    splits = ("train", "evaluation", CARRY)
    buckets = [Bucket("addition", 8, 0, split) for split in splits]
    lengths = [bucket.operand_lengths(0, 64).tolist() for bucket in buckets]
    assert lengths[2] not in lengths[:2]
    assert len(np.unique(np.concatenate([bucket.keys(0, 500) for bucket in buckets]))) == 1500


def test_uniform_digits_hardly_ever_hold_a_long_chain() -> None:
    task = load_task("addition")
    usual, hard = (Bucket("addition", 16, 0, split) for split in ("evaluation", CARRY))
    longest = [task.carry_chains(*bucket.operands(0, 256 * 40)) for bucket in (usual, hard)]
    assert (longest[0] > 4).mean() < 0.002 and (longest[1] > 4).mean() > 0.5


class Plain(Task):
    """A task that says nothing of carries."""

    version, symbol = 1, "-"

    def answer_width(self, max_digits: int) -> int:
        return max_digits

    def answer(self, a: Digits, b: Digits) -> Digits:
        return a


def test_a_task_without_hard_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tape_arith.arith.data.bucket.load_task", lambda name: Plain())
    Bucket("plain", 3, 0, "evaluation")
    with pytest.raises(UsageError, match="has no split 'carry'"):
        Bucket("plain", 3, 0, CARRY)
    one = as_digits([1], 1)
    with pytest.raises(UsageError, match="does not say what its carry chains are"):
        Plain().carry_chains(one, one)
