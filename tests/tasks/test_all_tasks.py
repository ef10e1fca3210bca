"""Every task in every format against strings and integers of plain Python, a problem at a time."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise, permutations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import declarations, known_names
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.tasks.addition import Addition
from tape_arith.arith.tasks.families import tokens
from tape_arith.arith.tasks.families.numbers import Digits
from tape_arith.arith.tasks.families.tokens import MARKERS, Vocabulary
from tape_arith.arith.tasks.families.writing import Field, Writer
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, concatenate

# Each option of a task alone, then all together, then what differs from both.
VALUES = {"order": "plain", "pad": "true", "hints": "true", "spaces": "3", "scratchpad": "true"}
VALUES |= {"b_digits": "3", "op": "xor", "modulus": "97", "markers": "9"}
VALUES |= {"key": "5", "depths": "5", "gaps": "3", "keys": "99"}
OTHERS = (
    *("addition:hints=true:scratchpad=true", "sum:hints=true:scratchpad=true", "or:op=and"),
    *("multiplication:b_digits=1", "multiplication:order=plain:pad=true:scratchpad=true"),
    *("modular-sum:modulus=2", "modular-sum:modulus=10000:spaces=2", "passkey:key=1"),
)


def formats() -> Iterator[str]:
    """Yield the names of every task in its formats."""
    for declared in declarations("task"):
        own = [f"{key}={VALUES[key]}" for key in declared.options]
        alone = [text for text in own if "markers" not in text]  # nothing without hints
        together = [":".join(own)] if len(own) > 1 else []
        yield from (f"{declared.name}:{text}".rstrip(":") for text in ("", *alone, *together))
    yield from OTHERS


NAMES = list(formats())
TOGETHER = [name for name in NAMES if name.count("=") > 2]


# The oracle: what a problem looks like, from the documentation of the tasks alone.


class Options(NamedTuple):
    """The value of --task, read by hand."""

    task: str
    order: str = "reversed"
    pad: bool = False
    hints: bool = False
    markers: int = 64
    spaces: int = 0
    scratchpad: bool = False
    op: str = "or"
    modulus: int = 10
    b_digits: int = 0
    key: int = 3
    depths: int = 8
    gaps: int = 8
    keys: int = 64

    @property
    def symbol(self) -> str:
        symbols = {"subtraction": "-", "multiplication": "x", "sort": ","}
        symbols |= {"passkey": "#", "recall": ""}
        symbols["or"] = {"or": "|", "and": "&", "xor": "^"}[self.op]
        return symbols.get(self.task, "+")


def options(name: str) -> Options:
    task, *texts = name.split(":")
    given = dict(text.split("=") for text in texts)
    values: dict[str, Any] = {}
    for key, text in given.items():
        values[key] = int(text) if text.isdigit() else text == "true" or text
    return Options(task, **values)


def has_operands(name: str) -> bool:
    return options(name).task in ("sum", "sort")


STRINGS = "copy", "reverse", "parity", "passkey", "recall"
"""Tasks whose digits are written in their own order."""

Write = Callable[[str], str]


def addition(operands: list[str], o: Options, write: Write) -> str:
    a, b = map(int, operands)
    if not o.scratchpad:
        return write(str(a + b))
    powers = [10 ** (place + 1) for place in range(max(map(len, operands)))]
    carries = [str((a % power + b % power) // power) for power in powers]
    return write("".join(carries[::-1])) + ">" + write(str(a + b))


def subtraction(operands: list[str], o: Options, write: Write) -> str:
    a, b = map(int, operands)
    sign, digits = "-" if a < b else "", write(str(abs(a - b)))
    return sign + digits if o.order == "plain" else digits + sign


def multiplication(operands: list[str], o: Options, write: Write) -> str:
    a, b = map(int, operands)
    if not o.scratchpad:
        return write(str(a * b))
    partials = [a * int(digit) * 10**place for place, digit in enumerate(operands[1][::-1])]
    lists = partials, accumulate(partials)
    return ">".join(",".join(write(str(number)) for number in numbers) for numbers in lists)


def total(operands: list[str], o: Options, write: Write) -> str:
    totals = [write(str(number)) for number in accumulate(map(int, operands))][1:]
    return ">".join(totals) if o.scratchpad else totals[-1]


def bitwise(operands: list[str], o: Options, write: Write) -> str:
    a, b = (int(bits, 2) for bits in operands)
    value = {"or": a | b, "and": a & b, "xor": a ^ b}[o.op]
    return write(f"{value:0{max(map(len, operands))}b}")


ANSWERS: dict[str, Callable[[list[str], Options, Write], str]] = {
    "addition": addition,
    "subtraction": subtraction,
    "multiplication": multiplication,
    "sum": total,
    "sort": lambda operands, o, write: ",".join(map(write, sorted(operands, key=int))),
    "modular-sum": lambda operands, o, write: write(str(sum(map(int, operands)) % o.modulus)),
    "or": bitwise,
    "copy": lambda operands, o, write: write(operands[0]),
    "reverse": lambda operands, o, write: operands[0][::-1],
    "parity": lambda operands, o, write: str(operands[0].count("1") % 2),
    "passkey": lambda operands, o, write: operands[1],
    "recall": lambda operands, o, write: next(
        pair if o.scratchpad else pair[1] for pair in operands if pair[0] == operands[-1]
    ),
}


def expected_text(operands: list[str], o: Options, first: int) -> tuple[str, str]:
    """Write the prompt and the answer to operands in the usual order, from marker `first` on."""

    def write(number: str) -> str:
        digits = number if o.task in STRINGS else number[::-1]
        if o.hints:
            parts = [MARKERS[first + place] + digit for place, digit in enumerate(digits)]
        else:
            parts = list(digits)
        return "".join(parts[::-1] if o.order == "plain" else parts)

    width = max(map(len, operands)) if o.pad else 0
    prompt = o.symbol.join(write(operand.zfill(width)) for operand in operands)
    return prompt + "=", ANSWERS[o.task](operands, o, write)


def most_tokens(lengths: list[int], o: Options) -> tuple[int, int]:
    """Count the tokens of the longest prompt and answer at these lengths: nines, mostly."""
    if o.task == "modular-sum":
        return 2 * lengths[0], len(str(o.modulus - 1))
    if o.task == "passkey":
        return lengths[1] + o.key + 3, o.key
    if o.task == "recall":
        return 2 * lengths[1] + 2, 1 + o.scratchpad
    counts = [lengths[1]] * lengths[0] if has_operands(o.task) else lengths
    counts = [lengths[0], o.b_digits] if o.b_digits else counts
    worst = [("1" if o.task in ("or", "parity") else "9") * count for count in counts]
    if o.task == "subtraction":
        worst = ["1".ljust(lengths[0], "0"), max(worst)]
    prompt, answer = expected_text(worst, o, 0)
    return len(prompt), len(answer)


def read_operands(prompt: str, lengths: list[int], o: Options) -> tuple[list[str], int]:
    """Read the operands, in the usual order, and the first marker from a prompt without '='."""
    markers = [MARKERS.index(char) for char in prompt if char in MARKERS] if o.hints else []
    digits = "".join(char for char in prompt if not (o.hints and char in MARKERS))
    texts = digits.split(o.symbol) if o.symbol else re.findall("[^0-9][0-9]?", digits)
    if o.order == "reversed" and o.task not in STRINGS:
        texts = [text[::-1] for text in texts]
    if o.pad and o.task == "or":  # zeros in front may belong to the string
        texts = [text[-length:] for text, length in zip(texts, lengths, strict=True)]
    elif o.pad:
        texts = [text.lstrip("0") for text in texts]
    return texts, min(markers, default=0)


def cells_of(operands: list[str], o: Options) -> list[list[int]]:
    """Return the cells that have such a problem: many where a short haystack has few depths."""
    if o.task == "passkey":
        before, key, after = operands
        size = len(before + after)
        depths = [
            d for d in range(1, o.depths + 1) if len(before) == (d - 1) * size // (o.depths - 1)
        ]
        assert len(key) == o.key and "" not in (key, before + after)
        return [[depth, size] for depth in depths]
    if o.task == "recall":
        letters = [pair[0] for pair in operands[:-1]]
        assert len({*letters}) == len(letters) and {*letters} <= {*MARKERS[: o.keys]}
        between, size = letters[::-1].index(operands[-1]), len(letters)
        # The asked pair is at least partly in part g, from (g - 1) / gaps to g / gaps of the pairs.
        gaps = [
            gap
            for gap in range(1, o.gaps + 1)
            if between * o.gaps < gap * size and (gap - 1) * size < (between + 1) * o.gaps
        ]
        return [[gap, len(letters)] for gap in gaps]
    return [lengths_of(operands, o)]


def lengths_of(operands: list[str], o: Options) -> list[int]:
    if o.task == "modular-sum":
        return [len(operands)]
    sizes = [len(operand) for operand in operands]
    if o.b_digits:
        assert sizes[1] == o.b_digits
        return sizes[:1]
    return [len(operands), max(sizes)] if has_operands(o.task) else sizes


def lines(problems: Problems, name: str) -> list[str]:
    vocabulary = load_task(name).vocabulary
    text = "".join(vocabulary.names[token] for token in problems.tokens.tolist())
    assert vocabulary.lines(problems.tokens) == text.replace("[EOS]", "\n")
    assert text.endswith("[EOS]") and len(problems.tokens) == problems.lengths.sum()
    return text.split("[EOS]")[:-1]


PATTERNS = {"or": "[01]+", "parity": "[01]+", "copy": "[0-9]+", "reverse": "[0-9]+"}
PATTERNS |= {"modular-sum": "[0-9]", "passkey": "[0-9]*", "recall": "[^0-9][0-9]?"}


class Problem(NamedTuple):
    operands: list[str]
    first_marker: int
    blanks: str
    """The prompt, in which blanks stand."""
    slack: int
    """Tokens that the bound on the length has to spare."""
    lengths: tuple[int, ...]


def checked(problems: Problems, name: str) -> list[Problem]:
    """Compare all of the problems with the oracle and return how it reads them."""
    o, checked_problems = options(name), []
    texts = lines(problems, name)
    numbers = zip(*(array.tolist() for array in problems[1:]), strict=True)
    for text, (length, prompt_length, lengths, final_length) in zip(texts, numbers, strict=True):
        prompt, answer = text.split("=")
        without_blanks = prompt.replace(" ", "")
        operands, first = read_operands(without_blanks, lengths, o)
        assert (without_blanks + "=", answer) == expected_text(operands, o, first)
        number = PATTERNS.get(o.task, "[1-9][0-9]*")
        assert all(re.fullmatch(number, operand) for operand in operands)
        assert lengths in cells_of(operands, o)
        assert length == len(text) + 1 and prompt_length == len(prompt) + 1
        assert final_length == prompt_length + most_tokens(lengths, o)[1] + 1 >= length
        assert len(prompt) - len(without_blanks) <= o.spaces
        slack = final_length - length
        checked_problems.append(Problem(operands, first, prompt, slack, tuple(lengths)))
    return checked_problems


def bucket(name: str, digits: int, operands: int = 4, split: str = "train") -> Bucket:
    return Bucket(name, digits, 5, split, operands if has_operands(name) else 0)


# Texts and lengths


def test_every_task_has_names() -> None:
    assert {options(name).task for name in NAMES} == set(ANSWERS) == set(known_names("task"))


def test_ids_of_tokens() -> None:
    text = "[PAD][UNK][BOS][EOS]0123456789+-x= "
    assert len(Vocabulary()) == 19 and Vocabulary().decode(range(19)) == text
    assert [Vocabulary().token(symbol) for symbol in text[20:]] == list(range(4, 19))
    assert (tokens.PAD, tokens.UNK, tokens.BOS, tokens.EOS) == (0, 1, 2, 3)


@pytest.mark.parametrize("name", NAMES)
def test_problems_are_as_documented(name: str) -> None:
    o, task = options(name), load_task(name)
    checked(task.parse(task.example), name)
    trained = checked(bucket(name, 8).problems(0, 64), name)
    small = checked(bucket(name, 2, 3).problems(0, 300), name)
    checked(bucket(name, 1, 10).problems(0, 40), name)
    if task.has_carries:
        checked(bucket(name, 8, split="carry").problems(0, 64), name)
        checked(bucket(name, 1, 10, "carry").problems(0, 40), name)
    most = [4, 8] if has_operands(name) else [8] * len(task.axes)
    assert bucket(name, 8).longest == sum(most_tokens(most, o)) + o.spaces + 1
    # Written by hand, the same operands give the same problem.
    for problem in trained[:5]:
        written = o.symbol.join(problem.operands)
        assert checked(task.parse(written), name)[0].operands == problem.operands
        assert task.text(written) == "".join(expected_text(problem.operands, o, 0))
    # The bound is reached in every cell, apart from the minus after a longer number.
    slack: dict[tuple[int, ...], int] = {}
    for problem in small:
        slack[problem.lengths] = min(problem.slack, slack.get(problem.lengths, 99))
    if o.task == "subtraction":
        assert {cell: int(cell[0] > cell[1]) for cell in slack} == slack
    elif o.task != "modular-sum":
        assert set(slack.values()) == {0}


CHOSEN: dict[str, list[tuple[str, ...]]] = {
    "two numbers": [
        ("9" * 300, "1"),
        ("1", "9" * 300),
        ("1" + "0" * 299, "1"),
        ("1", "1" + "0" * 299),
        ("9" * 300, "9" * 300),
        ("12" * 150, "12" * 150),
        ("1" + "0" * 150 + "7", "1" + "0" * 150 + "8"),
        ("90" * 75, "909"),
    ],
    "list": [
        ("9" * 300,) * 3,
        ("1" + "0" * 299, "9" * 299, "9" * 299 + "8", "9" * 299 + "7"),
        # More numbers than numpy sorts by insertion, alike in the first digits or in the last.
        tuple(
            f"{prefix}{'5' * 20}{suffix}" for prefix in (2, 1, 11) for suffix in range(19, 9, -1)
        ),
        tuple(f"{prefix}{'5' * 40}" for prefix in (10, 2, 1, 7, 70, 12) for _ in range(4)),
        ("7",) * 40,
    ],
}


@pytest.mark.parametrize("name", [name for name in NAMES if not re.search("hints|:spaces", name)])
def test_300_digits(name: str) -> None:
    o = options(name)
    # Multiplication's scratchpad would have 270,000 tokens.
    digits = 60 if o.task == "multiplication" and o.scratchpad else 300
    digits = o.keys if o.task == "recall" else digits  # each pair has a letter of its own
    checked(bucket(name, digits).problems(0, digits // 12), name)
    kinds = {"addition", "subtraction", "multiplication"}
    for operands in CHOSEN["two numbers" if o.task in kinds else "list"]:
        if o.task in kinds or has_operands(name):
            numbers = [operand[:digits] for operand in operands]
            if o.b_digits:
                numbers[1] = numbers[1].ljust(o.b_digits, "7")[: o.b_digits]
            text = load_task(name).text(o.symbol.join(numbers))
            assert text == "".join(expected_text(numbers, o, 0))


def test_numbers_as_long_as_the_markers_reach() -> None:
    for name, digits in [("addition", 63), ("subtraction", 64), ("copy", 64), ("sum", 63)]:
        checked(bucket(f"{name}:hints=true", digits).problems(0, 100), f"{name}:hints=true")


# The stream


@pytest.mark.parametrize("split", ["train", "carry"])
def test_each_block_holds_every_cell_once_in_an_order_of_its_own(split: str) -> None:
    stream, blocks, cells = bucket("addition", 30, split=split), 12, 900
    places = {cell: place for place, cell in enumerate(product(range(1, 31), repeat=2))}
    lengths = map(tuple, stream.axis_lengths(0, blocks * cells).tolist())
    orders = np.array([places[cell] for cell in lengths]).reshape(blocks, cells)
    assert (np.sort(orders) == np.arange(cells)).all()
    assert len(np.unique(orders, axis=0)) == blocks
    # Where a cell stands in a block tells nothing of its lengths.
    assert abs(np.corrcoef(np.tile(np.arange(cells), blocks), orders.ravel())[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("task", "shape"),
    [
        ("sum", (3, 5)),
        ("passkey", (8, 5)),
        ("modular-sum", (5,)),
        ("multiplication:b_digits=3", (5,)),
    ],
)
def test_a_block_has_the_shape_of_the_axes(task: str, shape: tuple[int, ...]) -> None:
    stream = bucket(task, 5)
    lengths = stream.axis_lengths(0, prod(shape)) - [axis.shortest for axis in load_task(task).axes]
    assert stream.shape == shape and stream.num_cells == prod(shape)
    assert sorted(map(tuple, lengths.tolist())) == list(np.ndindex(shape))


@pytest.mark.parametrize("task", ["addition", "subtraction", "sum", "multiplication"])
def test_any_slicing_of_hard_problems_gives_the_same(task: str) -> None:
    stream = bucket(task, 6, split="carry")
    expected = stream.problems(95, 300)
    joined = concatenate([stream.problems(*span) for span in pairwise([95, 96, 100, 100, 300])])
    for field in Problems._fields:
        assert np.array_equal(getattr(joined, field), getattr(expected, field))


# Chance. One sound stream in 10,000 falls below each threshold; the seeds are fixed.


def check_frequencies(values: Sequence[Any], expected: Mapping[Any, float]) -> None:
    counts = Counter(values)
    assert set(counts) <= set(expected)
    observed = [counts[value] for value in expected]
    shares = np.array(list(expected.values())) / sum(expected.values())
    assert len(expected) == 1 or stats.chisquare(observed, shares * len(values)).pvalue > 1e-4


def check_uniform(values: Sequence[Any], outcomes: Iterable[Any]) -> None:
    check_frequencies(values, dict.fromkeys(outcomes, 1.0))


@pytest.mark.parametrize("task", ["addition", "sum", "or", "copy", "parity", "passkey"])
def test_digits_are_uniform_and_independent(task: str) -> None:
    problems = checked(bucket(task, 6).problems(0, 2500), task)
    numbers = task in ("addition", "sum")
    digits = "01" if task in ("or", "parity") else "0123456789"
    joined = ["".join(op[numbers:] for op in problem.operands) for problem in problems]
    for place in range(3):
        check_uniform([text[place] for text in joined if len(text) > place], digits)
    neighbours = [
        text[place : place + 2] for text in joined for place in range(0, len(text) - 1, 2)
    ]
    check_uniform(neighbours, ["".join(pair) for pair in product(digits, repeat=2)])
    ends = [text[0] + text[-1] for text in joined if len(text) > 1]
    check_uniform(ends, ["".join(pair) for pair in product(digits, repeat=2)])
    if numbers:
        leading = [tuple(op[0] for op in problem.operands[:2]) for problem in problems]
        check_uniform(leading, product("123456789", repeat=2))


def test_letters_are_uniform_in_every_order_and_values_in_every_pair() -> None:
    problems = checked(bucket("recall:keys=5", 3).problems(0, 24 * 100), "recall:keys=5")
    three = [problem.operands[:-1] for problem in problems if problem.lengths[1] == 3]
    orders = ["".join(pair[0] for pair in pairs) for pairs in three]
    check_uniform(orders, map("".join, permutations(MARKERS[:5], 3)))
    values = ["".join(pair[1] for pair in pairs[:2]) for pairs in three]
    check_uniform(values, map("".join, product("0123456789", repeat=2)))


@pytest.mark.parametrize(
    ("name", "cuts"),
    [("passkey", (0, 9, 18, 27, 36, 45, 54, 64)), ("passkey:depths=3", (0, 32, 64))],
)
def test_depths_go_from_one_end_to_the_other(name: str, cuts: tuple[int, ...]) -> None:
    stream = bucket(name, 64)
    for problem in checked(stream.problems(0, 2 * stream.num_cells), name):
        depth, size = problem.lengths
        assert size < 64 or len(problem.operands[0]) == cuts[depth - 1]


@pytest.mark.parametrize(("name", "pairs"), [("recall", 3), ("recall:gaps=3", 7)])
def test_every_pair_is_asked_equally_often_and_a_gap_is_a_part_of_them(
    name: str, pairs: int
) -> None:
    stream, between = bucket(name, pairs), []
    for problem in checked(stream.problems(0, 60 * stream.num_cells), name):
        *letters, asked = (operand[0] for operand in problem.operands)
        if len(letters) == pairs:
            between.append(pairs - 1 - letters.index(asked))
    check_uniform(between, range(pairs))


def test_a_problem_that_is_written_by_hand_has_a_place() -> None:
    """Between two depths the deeper; of two gaps that share a pair the smaller."""
    for written, cell in (("314159#271#26", [7, 8]), ("3141592#271#6", [8, 8])):
        assert load_task("passkey").parse(written).axis_lengths.tolist() == [cell]
    for query, gap in zip("abcdefghijk", (8, 7, 6, 6, 5, 4, 3, 3, 2, 1, 1), strict=True):
        problem = load_task("recall").parse(f"a0b1c2d3e4f5g6h7i8j9k0{query}")
        assert problem.axis_lengths.tolist() == [[gap, 11]]


def test_recall_has_no_more_pairs_than_letters() -> None:
    with pytest.raises(UsageError, match="64 keys, too few for 65 pairs: give keys=65 or more"):
        Bucket("recall", 65, 0, "train")
    with pytest.raises(UsageError, match="too few for 200 pairs: give fewer pairs"):
        Bucket("recall", 200, 0, "train")


def test_lengths_in_a_list() -> None:
    """One number, any, is as long as the cell says; the others have 1 to so many digits."""
    problems = checked(bucket("sum", 3).problems(0, 9 * 300), "sum")
    for count, digits in product((2, 3, 4), (1, 2, 3)):
        cell = [problem for problem in problems if problem.lengths == (count, digits)]
        sizes = [tuple(map(len, problem.operands)) for problem in cell]
        possible = product(range(1, digits + 1), repeat=count)
        weights = {size: float(size.count(digits)) for size in possible if digits in size}
        check_frequencies(sizes, weights)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("subtraction:hints=true:markers=11:spaces=1", 8),
        ("sum:hints=true:markers=12", 8),
        ("copy:hints=true:markers=9", 6),
    ],
)
def test_first_markers_are_uniform_and_reach_the_last(name: str, choices: int) -> None:
    """`choices` for the longest problems, one more for each digit less."""
    problems, digits = checked(bucket(name, 4).problems(0, 1500), name), 4
    for longest in range(1, digits + 1):
        firsts = [
            problem.first_marker
            for problem in problems
            if max(problem.lengths[has_operands(name) :]) == longest
        ]
        check_uniform(firsts, range(choices + digits - longest))


@pytest.mark.parametrize("name", ["addition:spaces=3", "modular-sum:spaces=2", TOGETHER[0]])
def test_blanks_are_uniform(name: str) -> None:
    spaces = options(name).spaces
    problems = checked(bucket(name, 3).problems(0, 2000), name)
    check_uniform([problem.blanks.count(" ") for problem in problems], range(spaces + 1))
    # With one blank, all places before a token of the prompt, '=' among them, are as likely.
    single = [problem.blanks for problem in problems if problem.blanks.count(" ") == 1]
    for length in Counter(map(len, single)):
        places = [blanks.index(" ") for blanks in single if len(blanks) == length]
        if len(places) > 10 * length:
            check_uniform(places, range(length))


# Errors


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("sorts", ["sorts", "sort"]),
        ("copy:order=plain", ["order", "hints", "markers"]),
        ("sum:oder=plain", ["oder", "order"]),
        ("sum:op=and", ["op", "order", "pad", "hints", "scratchpad"]),
        ("copy:spaces=1", ["spaces", "hints", "markers"]),
        ("or:op=nor", ["nor", "or", "and", "xor"]),
        ("addition:order=backwards", ["backwards", "reversed", "plain"]),
        ("addition:pad=yes", ["yes", "true", "false"]),
        ("modular-sum:modulus=1", ["modulus=1", "2 to 10,000"]),
        ("multiplication:b_digits=101", ["b_digits=101", "0 to 100"]),
        ("addition:spaces=101", ["spaces=101", "0 to 100"]),
        ("addition:markers=9", ["markers=9", "without hints=true"]),
        ("addition:hints=true:markers=0", ["markers=0"]),
        ("addition:hints=true:markers=2", ["4 digits", "markers=4"]),
        ("passkey:order=plain", ["order", "key", "depths", "spaces"]),
        ("passkey:key=0", ["key=0", "1 to 100"]),
        ("passkey:depths=1", ["depths=1", "2 to 100"]),
        ("recall:spaces=1", ["spaces", "gaps", "keys"]),
        ("recall:gaps=1", ["gaps=1", "2 to 100"]),
        ("recall:keys=2", ["keys=2", "3 to 116"]),
    ],
)
def test_wrong_options_are_refused(task: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        Bucket(task, 3, 0, "train")
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


NO_PROBLEMS = {
    "addition": ["12-3", "012+3", "12+3+4", "12+", "-1+2", "1.5+2", ""],
    "subtraction": ["12-"],
    "multiplication": ["12*3"],
    "multiplication:b_digits=2": ["12x3"],
    "sum": ["12", "12+03", "1 2+3"],
    "sort": ["12,,3"],
    "modular-sum": ["3+15"],
    "or": ["012|1"],
    "or:op=and": ["01|1"],
    "copy": [""],
    "parity": ["102"],
    "passkey": ["31#27#59", "#271#", "31#271", "3#271#5#9", "31271#59"],
    "passkey:key=2": ["31#271#59"],
    "recall": ["a3b7c1d", "a3b7a1b", "a3b7", "3a", "a", "x3x", "a3b\u0667b"],
    "recall:keys=3": ["d1d"],
}


@pytest.mark.parametrize("task", NO_PROBLEMS)
def test_what_is_no_problem_is_refused(task: str) -> None:
    for written in NO_PROBLEMS[task]:
        with pytest.raises(UsageError, match="write it"):
            load_task(task).parse(written)


def test_digits_beyond_a_number_are_refused() -> None:
    class Beyond(Addition):
        def answer_fields(self, drawn: tuple[Digits, Digits], write: Writer) -> list[Field]:
            return [write.number(Digits(drawn[0].values, drawn[0].lengths - 1))]

    stream = bucket("addition", 3)
    no_format = np.zeros((9, 0), np.uint32)
    with pytest.raises(UsageError, match="its length"):
        Beyond().problems(stream.drawn(0, 9), stream.axis_lengths(0, 9), no_format)


@pytest.mark.parametrize("name", known_names("task"))
def test_chance_is_the_share_of_the_commonest_answer_at_any_length(name: str) -> None:
    """Zero where no guess is right at long lengths. Of a scratchpad the final answer counts."""
    bucket = load_preset("mini" if name == "addition" else f"mini-{name}").evaluation_bucket()
    task = load_task(bucket.task)
    problems = bucket.problems(0, 4000)
    lengths = problems.axis_lengths.max(axis=1)
    counts = Counter(
        tuple(task.final_answer(problems.tokens[start + prompt : start + length].tolist()))
        for start, prompt, length, longest in zip(
            problems.starts, problems.prompt_lengths, problems.lengths, lengths, strict=True
        )
        if longest > lengths.max() / 2
    )
    share = max(counts.values()) / counts.total()
    assert share == pytest.approx(task.chance, abs=0.03)


@pytest.mark.parametrize("name", known_names("task"))
def test_positions_are_needed_where_another_order_of_the_digits_has_another_answer(
    name: str,
) -> None:
    task, shuffle, answers = load_task(name), random.Random(0).shuffle, set()
    digits = [letter for letter in task.example if letter.isdigit()]
    for _ in range(40):
        shuffle(digits)
        left = iter(digits)
        written = "".join(next(left) if x.isdigit() else x for x in task.example)
        with suppress(UsageError):  # a leading zero
            answers.add(task.text(written).rpartition("=")[2])
    assert answers and (len(answers) > 1) == task.needs_positions


def test_the_longest_carries_are_pythons() -> None:
    task = load_task("addition")
    for a, b in ((9, 1), (10**300 - 1, 1), (1, 10**300 - 1)):
        digits = [str(number)[::-1] for number in (a, b, a + b)]
        assert task.text(f"{a}+{b}") == "{}+{}={}".format(*digits)
    for name in ("addition", "subtraction"):
        checked(bucket(name, 16, split="carry").problems(0, 256), name)
