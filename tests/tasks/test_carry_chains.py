"""Carry chains against Python's integers, and the split that is made of long ones."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from tape_arith.arith.data.bucket import CARRY, Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.families.numbers import UInt32, digits_of
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Task

SYMBOLS = {"addition": "+", "subtraction": "-", "sum": "+", "multiplication": "x"}
CHOSEN = {
    "addition": {"1+2": 0, "95+15": 1, "95+5": 2, "1+9999": 4, "949+51": 3},
    "subtraction": {"7-5": 0, "15-7": 1, "1-1000": 3, "1234-234": 0, "7171-1272": 2},
    "sum": {"1+2+6": 0, "9+9+9": 1, "5+5+90": 2, "28+1+1": 1, "9+8+8+75": 2},
    "multiplication": {"3x3": 0, "7x5": 1, "99x99": 3, "25x4": 2, "5x19": 1},
}


def columns(task: str, numbers: list[int]) -> list[int]:
    """Return what the digits of a problem add up to at each place."""
    digits = [[*map(int, str(number)[::-1])] for number in numbers]
    at_place = [0] * (2 + sum(map(len, digits)))
    if task == "multiplication":
        for place, digit in enumerate(digits[0]):
            for other_place, other in enumerate(digits[1]):
                at_place[place + other_place] += digit * other
    else:
        taken_away = numbers.index(min(numbers)) if task == "subtraction" else None
        for which, each in enumerate(digits):
            for place, digit in enumerate(each):
                at_place[place] += -digit if which == taken_away else digit
    return at_place


def right_answer(task: str, numbers: list[int]) -> int:
    a, b = numbers[:2]
    return {"subtraction": a - b, "multiplication": a * b}.get(task, sum(numbers))


def longest_chain(task: str, numbers: list[int]) -> int:
    """Count by the definition, with the carries that all lower places together make."""
    at_place = columns(task, numbers)
    assert sum(column * 10**k for k, column in enumerate(at_place)) == abs(
        right_answer(task, numbers)
    )
    longest = running = lower = 0
    for place, column in enumerate(at_place):
        lower += column * 10**place
        carry = lower // 10 ** (place + 1)
        running = running + 1 if carry != column // 10 else int(carry != 0)
        longest = max(longest, running)
    return longest


def counted(task: str, written: str) -> int:
    drawn, _ = load_task(task).read(written)
    return int(load_task(task).carry_chains(drawn)[0])


@pytest.mark.parametrize("task", CHOSEN)
def test_chains_of_chosen_problems(task: str) -> None:
    for written, longest in CHOSEN[task].items():
        numbers = [*map(int, re.split(r"\D", written))]
        assert counted(task, written) == longest == longest_chain(task, numbers), written


def test_chains_of_bits() -> None:
    """1 + 1 carries, and 1 + 0 passes a carry on."""

    class Bits(Addition):
        base = 2

    drawn = digits_of(["1111", "0111", "1010", "1101"]), digits_of(["0001", "0001", "0101", "1101"])
    assert Bits().carry_chains(drawn).tolist() == [4, 3, 0, 1]


@settings(database=None, deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 10**30), min_size=2, max_size=12), st.integers(0, 9))
@example([10**30, 1], 0)
def test_chains_of_any_numbers(numbers: list[int], change: int) -> None:
    # Many nines or equal digits, or a long chain would hardly ever come up.
    a, more = numbers[0], numbers[1:]
    complement = max(1, 10 ** len(str(a)) - 1 - a + change)
    for task, numbers in (
        ("addition", [a, complement]),
        ("addition", [a, more[0]]),
        ("subtraction", [a, max(1, a - 10 * change)]),
        ("subtraction", [a, more[0]]),
        ("sum", [a, *more]),
        ("sum", [a, complement, *more[1:]]),
        ("multiplication", [a, more[0]]),
    ):
        written = SYMBOLS[task].join(map(str, numbers))
        assert counted(task, written) == longest_chain(task, numbers), written


# The split


def half_words(task: Task[Any], cell: tuple[int, int], count: int) -> UInt32:
    size = count, task.hard_halves(cell)
    return np.random.default_rng(0).integers(0, 2**32, size, dtype=np.uint32)


DRAWN = [
    *(("addition", cell) for cell in ((1, 1), (1, 6), (6, 1), (2, 2), (3, 5), (9, 4))),
    *(("subtraction", cell) for cell in ((2, 1), (1, 6), (3, 3), (9, 4), (6, 6))),
    *(("sum", cell) for cell in ((2, 1), (2, 6), (2, 9))),
]


@pytest.mark.parametrize(("task", "cell"), DRAWN)
def test_the_longest_chain_is_as_long_as_drawn_and_uniform(
    task: str, cell: tuple[int, int]
) -> None:
    """In two numbers. Threshold: one sound stream in 1,000 exceeds it."""
    count, own, lengths = 3_000, load_task(task), np.tile(cell, (3_000, 1))
    most = cell[1] if task == "sum" else max(cell) - (task == "subtraction")
    halves = half_words(own, cell, count)
    drawn = own.draw_hard(lengths, halves, cell)
    which = {"addition": 0, "subtraction": 1, "sum": 2 * own.words_each(cell)}[task]
    wanted = 1 + (halves[:, which].astype(np.int64) * most >> 32)
    assert own.carry_chains(drawn).tolist() == wanted.tolist()
    counts = np.bincount(wanted, minlength=most + 1)[1:]
    assert most == 1 or stats.chisquare(counts).pvalue > 1e-3
    if task == "addition":  # a chain of all places makes an extra digit, always
        made = own.problems(drawn, lengths, np.zeros((count, 0), np.uint32))
        answers = made.lengths - made.prompt_lengths - 1
        assert ((answers == max(cell) + 1) | (wanted < most)).all()


@pytest.mark.parametrize("cell", [(5, 3), (3, 5), (4, 4), (1, 6)])
def test_a_chain_starts_at_any_place_where_it_fits(cell: tuple[int, int]) -> None:
    """Both numbers have a digit at its start, and the chain ends within the longer one."""
    count, own = 2_000, load_task("addition")
    halves = half_words(own, cell, count)
    columns = own.columns(own.draw_hard(np.tile(cell, (count, 1)), halves, cell))
    chosen, starts = halves[:, :2].astype(object), set[tuple[int, int]]()
    for row, (first, second) in zip(columns.tolist(), chosen, strict=True):
        length = 1 + int(first * max(cell) >> 32)
        start = int(second * (1 + min(min(cell) - 1, max(cell) - length)) >> 32)
        assert row[start] >= 10 and row[start + 1 : start + length] == [9] * (length - 1)
        starts.add((start, length))
    ends = range(1, max(cell) + 1)
    assert starts == {(s, end - s) for s in range(min(cell)) for end in ends if end > s}


def test_two_numbers_of_one_digit_never_borrow() -> None:
    bucket = Bucket("subtraction", 1, 0, CARRY)
    first, second = (digits.values[:, 0].astype(int) for digits in bucket.drawn(0, 500))
    assert not load_task("subtraction").carry_chains(bucket.drawn(0, 500)).any()
    assert (first > second).any() and (first < second).any()


@pytest.mark.parametrize(("most", "share"), [((3, 6), 0.97), ((6, 6), 0.89), ((15, 9), 0.64)])
def test_chains_in_sums_of_many_numbers(most: tuple[int, int], share: float) -> None:
    """Beside others a chain may miss its length; but every length stays likely."""
    own, count = load_task("sum"), 3_000
    halves = half_words(own, most, count)
    drawn = own.draw_hard(np.tile(most, (count, 1)), halves, most)
    wanted = 1 + (halves[:, 2 * own.words_each(most)].astype(np.int64) * most[1] >> 32)
    chains = own.carry_chains(drawn)
    assert (drawn.lengths.max(axis=1) == most[1]).all() and (drawn.counts == most[0]).all()
    assert (chains == wanted).mean() > share
    assert np.bincount(chains)[1:].min() > count / most[1] / 2


def test_a_hard_product_is_the_draw_nearest_to_the_length_wanted() -> None:
    own, cell, count = load_task("multiplication"), (4, 3), 60
    each = 2 * own.words_each(cell)
    halves = half_words(own, cell, count)
    lengths = np.tile(cell, (count, 1))
    hard = own.carry_chains(own.draw_hard(lengths, halves, cell))
    tries = [own.draw(lengths, halves[:, 1 + k * each :][:, :each], cell) for k in range(32)]
    chains = np.stack([own.carry_chains(drawn) for drawn in tries])
    for row in range(count):
        wanted = 1 + math.floor(halves[row, 0] * max(chains[:, row]) / 2**32)
        assert abs(hard[row] - wanted) == min(abs(chains[:, row] - wanted))


@pytest.mark.parametrize("task", ["copy", "modular-sum", "sort", "or"])
def test_a_task_without_carries(task: str) -> None:
    assert not load_task(task).has_carries
    with pytest.raises(UsageError, match=rf"{task} .*'carry'"):
        Bucket(task, 3, 0, CARRY, 3 if task == "sort" else 0)
