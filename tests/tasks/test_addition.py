"""Every problem against Python's integers; the stream against a Philox written from its paper."""

import hashlib
import json
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.tasks.families import tokens
from tape_arith.arith.tasks.families.random_words import words
from tape_arith.arith.tasks.families.tokens import Vocabulary
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, concatenate, take

SIZES = {1: 2000, 2: 4000, 8: 4000, 40: 3200, 300: 600}


def split(problems: Problems) -> list[str]:
    ends = np.cumsum(problems.lengths)
    text = Vocabulary().decode(problems.tokens)
    assert text.endswith("[EOS]") and len(problems.tokens) == ends[-1]
    return text.split("[EOS]")[:-1]


@pytest.mark.parametrize("max_digits", SIZES)
def test_every_answer_is_pythons(max_digits: int) -> None:
    problems = Bucket("addition", max_digits, 3, "train").problems(0, SIZES[max_digits])
    lines = split(problems)
    assert len(lines) == SIZES[max_digits]
    for number, line in enumerate(lines):
        prompt, answer = line.split("=")
        first, second = prompt.split("+")
        assert first[-1] != "0" and second[-1] != "0"
        assert answer == str(int(first[::-1]) + int(second[::-1]))[::-1]
        assert problems.lengths[number] == len(line) + 1
        assert problems.prompt_lengths[number] == len(prompt) + 1
        assert problems.axis_lengths[number].tolist() == [len(first), len(second)]
        bound = len(prompt) + 1 + max(len(first), len(second)) + 2
        assert problems.final_lengths[number] == bound >= problems.lengths[number]


@settings(database=None, deadline=None)
@given(st.integers(1, 10**60), st.integers(1, 10**60))
@example(9, 1)
@example(10**300 - 1, 1)
@example(1, 10**300 - 1)
def test_addition_of_chosen_numbers(a: int, b: int) -> None:
    task = load_task("addition")
    assert task.text(f"{a}+{b}") == f"{str(a)[::-1]}+{str(b)[::-1]}={str(a + b)[::-1]}"


def test_the_longest_problem_is_as_long_as_said() -> None:
    task = load_task("addition")
    for digits in (1, 8, 40):
        nines = 10**digits - 1
        assert (
            len(task.text(f"{nines}+{nines}")) + 1
            == task.longest((digits, digits))
            == 3 * digits + 4
        )


def test_tasks_are_the_files_of_the_folder() -> None:
    assert "addition" in known_names("task") and "task" not in known_names("task")
    with pytest.raises(UsageError, match="unknown task 'aditoin': did you mean 'addition'"):
        load_task("aditoin")
    with pytest.raises(UsageError, match="unknown option of copy 'order': Known: hints, markers"):
        load_task("copy:order=plain")


def test_vocabulary_is_the_fields() -> None:
    symbols = "0123456789+-x= "
    assert [Vocabulary().token(symbol) for symbol in symbols] == list(range(4, 19))
    assert (tokens.PAD, tokens.UNK, tokens.BOS, tokens.EOS) == (0, 1, 2, 3)
    assert len(Vocabulary()) == 19
    assert Vocabulary().decode(range(19)) == f"[PAD][UNK][BOS][EOS]{symbols}"


def test_problems_joined_and_taken() -> None:
    bucket = Bucket("addition", 5, 0, "train")
    spans = [(90, 100), (0, 3), (7, 8)]
    joined = concatenate([bucket.problems(*span) for span in spans])
    indices = np.array([*range(90, 100), 0, 1, 2, 7])
    for array, taken in zip(joined, take(bucket.problems(0, 100), indices), strict=True):
        assert np.array_equal(np.asarray(array), np.asarray(taken))
    assert split(joined) == [text for span in spans for text in split(bucket.problems(*span))]


# The stream once more, a word at a time, from the paper's definition of Philox4x64-10.


def philox(key: tuple[int, int], counter: int) -> list[int]:
    mask, (k0, k1) = 2**64 - 1, key
    c = [counter >> 64 * place & mask for place in range(4)]
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [right >> 64 ^ c[1] ^ k0, right & mask, left >> 64 ^ c[3] ^ k1, left & mask]
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & mask, k1 + 0xBB67AE8584CAA73B & mask
    return c


def plain_words(key: tuple[str | int, ...], index: int, count: int) -> list[int]:
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    halves = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
    counters = (count + 3) // 4
    # numpy counts up before it draws: its first words are those of counter + 1.
    drawn = [philox(halves, index * counters + step + 1) for step in range(counters)]
    return [word for four in drawn for word in four][:count]


def plain_problem(max_digits: int, seed: int, index: int) -> str:
    key = ("addition", 1, seed, "train", max_digits)
    pairs = max_digits**2
    block, place = divmod(index, pairs)
    low = 2 ** (pairs - 1).bit_length() - 1
    order = plain_words((*key, "order"), block, pairs)
    pair = sorted(range(pairs), key=lambda number: (order[number] & ~low, number))[place]
    quads = (max_digits + 3) // 4
    drawn = plain_words((*key, "digits"), index, 1 + quads)
    halves = [half for word in drawn for half in (word & 0xFFFFFFFF, word >> 32)]
    operands = []
    for side, length in enumerate(divmod(pair, max_digits)):
        own = halves[2 + side * quads : 2 + (side + 1) * quads]
        digits = "".join(f"{half * 10**4 >> 32:04d}"[::-1] for half in own)
        operands.append(digits[:length] + str((halves[side] * 9 >> 32) + 1))
    answer = int(operands[0][::-1]) + int(operands[1][::-1])
    return f"{operands[0]}+{operands[1]}={str(answer)[::-1]}"


@pytest.mark.parametrize("max_digits", [1, 2, 5, 8, 40])
def test_the_stream_is_as_documented(max_digits: int) -> None:
    bucket = Bucket("addition", max_digits, 7, "train")
    indices = [0, 1, *random.Random(0).sample(range(200_000), 6), 2**40]
    for index in indices:
        drawn = split(bucket.problems(index, index + 1))
        assert drawn == [plain_problem(max_digits, 7, index)]


def test_words_beyond_two_to_the_64th_counter() -> None:
    start = 2**63  # times two counters each
    drawn = words(("far",), start, 2, 5)
    assert drawn.tolist() == [plain_words(("far",), start + step, 5) for step in (0, 1)]
