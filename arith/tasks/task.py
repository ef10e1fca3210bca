"""The interface of a task, how its problems become tokens, and the random words that draw them.

A problem is `a OP b = c` and the end token. A task is one file of this folder, named like the value
of --task, or an entry point of the group `tape_arith.tasks` in an installed package.

n  problems        W  most digits of an operand

Digits are ordered least significant first, in arrays and in tokens. Token ids are those of the
files published in this field, so that token files can be compared.

Random words are a pure function of a key and an index: word j of index i needs no words before it,
so that any slice of the data can be generated alone. The generator is
Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Only numpy's raw
words are used: what its Generator methods make of them may change between versions of numpy.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tape_arith.arith.errors import UsageError, unknown
from tape_arith.models.locate import Location, in_folder, installed, select

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_TASKS = Path(__file__).parent
PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
SYMBOLS = "0123456789+-x= "
SIZE = len(SPECIAL) + len(SYMBOLS)
DIGIT_ZERO = len(SPECIAL)
"""Digit d has the id DIGIT_ZERO + d."""

_IDS = {symbol: number for number, symbol in enumerate(SYMBOLS, start=len(SPECIAL))}

TO_TEXT = bytes.maketrans(bytes([EOS, *range(DIGIT_ZERO, SIZE)]), f"\n{SYMBOLS}".encode())
"""For `bytes.translate`: ids to text, one problem per line (the end token ends the line)."""

_WORDS_PER_COUNTER = 4  # of Philox4x64
_MASK = 2**64 - 1


class Digits(NamedTuple):
    """Numbers of any length: digit k of number r is `values[r, k]`, 0 from `lengths[r]` on."""

    values: UInt8
    """uint8[n, at least the longest length], in C order"""
    lengths: Int64
    """int64[n]: number of digits"""


class Problems(NamedTuple):
    """n problems, end to end without padding."""

    tokens: UInt8
    """uint8[sum(lengths)]: the tokens of all problems, each with its end token"""
    lengths: Int64
    """int64[n]: tokens of each problem, the end token included"""
    prompt_lengths: Int64
    """int64[n]: tokens of each problem through '='"""
    operand_lengths: Int64
    """int64[n, 2]: digits of the two operands"""
    final_lengths: Int64
    """int64[n]: bounds on `lengths` from the prompts alone (true lengths reveal carries)"""

    @property
    def starts(self) -> Int64:
        """int64[n]: index of each problem's first token."""
        return np.cumsum(self.lengths) - self.lengths


def concatenate(parts: Sequence[Problems]) -> Problems:
    """Join the problems of one or more parts."""
    if len(parts) == 1:  # nothing to copy
        return parts[0]
    return Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def take(problems: Problems, indices: Int64) -> Problems:
    """Select the problems at `indices`, int64[m], in that order."""
    lengths = problems.lengths[indices]
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    tokens = problems.tokens[np.repeat(problems.starts[indices], lengths) + inside]
    return Problems(tokens, *(field[indices] for field in problems[1:]))


class Task(ABC):
    """One kind of problem. A subclass defines `version`, `symbol`, `answer_width` and `answer`."""

    version: ClassVar[int]
    """Raised whenever a problem changes: datasets and results of two versions never mix."""
    symbol: ClassVar[str]
    """The operator, one symbol of the vocabulary."""
    name: str = ""
    """Value of --task; `load_task` sets it."""

    @abstractmethod
    def answer_width(self, max_digits: int) -> int:
        """Return the digits of the longest answer to operands of at most `max_digits` digits."""

    @abstractmethod
    def answer(self, a: Digits, b: Digits) -> Digits:
        """Return the answers. Both arrays of values have one shape; their lengths may differ."""

    def carry_operands(
        self, operand_lengths: Int64, halves: npt.NDArray[np.uint32]
    ) -> tuple[Digits, Digits]:
        """Return operands of the split `carry`, made hard by their digits, not by their lengths.

        operand_lengths  int64[n, 2]
        halves           uint32[n, 2 + W]: random words, which alone decide the digits

        Raises UsageError unless a subclass defines what is hard.
        """
        raise UsageError(f"task {self.name} has no split 'carry': leave --split out")

    def carry_chains(self, a: Digits, b: Digits) -> Int64:
        """Return the length of the longest carry chain of each problem, int64[n].

        Raises UsageError unless a subclass defines its carries.
        """
        raise UsageError(f"task {self.name} does not say what its carry chains are")

    def longest(self, max_digits: int) -> int:
        """Return the number of tokens of the longest problem, the end token included."""
        prompt = int(self.prompt_lengths(np.full((1, 2), max_digits))[0])
        return prompt + self.answer_width(max_digits) + 1

    def prompt_lengths(self, operand_lengths: Int64) -> Int64:
        """Return the number of tokens through '=', int64[n], for operands of int64[n, 2] digits."""
        return operand_lengths[:, 0] + operand_lengths[:, 1] + 2  # not sum(): 20 times slower

    def final_lengths(self, operand_lengths: Int64) -> Int64:
        """Return a bound on each problem's number of tokens, from its prompt alone: int64[n].

        Addition: prompt + max(operand_lengths) + 2, for the last carry and the end token.
        """
        most = operand_lengths.max(axis=1)
        answers = np.array([self.answer_width(digits) for digits in range(most.max(initial=0) + 1)])
        bounds: Int64 = self.prompt_lengths(operand_lengths) + answers[most] + 1
        return bounds

    def problems(self, a: Digits, b: Digits, max_digits: int) -> Problems:
        """Return n problems whose operands have at most `max_digits` digits.

        Raises UsageError if an answer has more digits than `answer_width`: they would be cut off.
        """
        c = self.answer(a, b)
        widest, room = int(c.lengths.max(initial=0)), self.answer_width(max_digits)
        if widest > room:
            raise UsageError(
                f"task {self.name} gives an answer of {widest} digits to operands of up to "
                f"{max_digits}, and its answer_width says {room} at most: mend one of the two"
            )

        def column(token_id: int) -> UInt8:
            return np.full((len(a.lengths), 1), token_id, np.uint8)

        # Each field has a slot of one width, with PAD after its last token, so that one selection
        # drops the PADs of all problems. Computing each token's index takes twice as long.
        fields = [
            *(_tokens(a, max_digits), column(token(self.symbol))),
            *(_tokens(b, max_digits), column(token("="))),
            *(_tokens(c, room), column(EOS)),
        ]
        slots = np.concatenate(fields, axis=1)
        operand_lengths = np.stack([a.lengths, b.lengths], axis=1)
        prompt_lengths = self.prompt_lengths(operand_lengths)
        return Problems(
            tokens=slots[slots != PAD],
            lengths=prompt_lengths + c.lengths + 1,
            prompt_lengths=prompt_lengths,
            operand_lengths=operand_lengths,
            final_lengths=self.final_lengths(operand_lengths),
        )

    def problem(self, a: int, b: int) -> Problems:
        """Return the problem of one pair of operands."""
        width = len(str(max(a, b)))
        return self.problems(_digits(a, width), _digits(b, width), width)

    def parse(self, written: str) -> Problems:
        """Return the problem that is written as in "123+45".

        Raises UsageError if it is not one of this task.
        """
        operand = "([1-9][0-9]{0,999})"
        match = re.fullmatch(f" *{operand} *{re.escape(self.symbol)} *{operand} *", written)
        if match is None:
            raise UsageError(
                f"'{written}' is no problem of {self.name}: two numbers with '{self.symbol}' "
                f"between them and without leading zeros, as in 123{self.symbol}45"
            )
        return self.problem(*map(int, match.groups()))

    def text(self, a: int, b: int) -> str:
        """Return the text of one problem, without its end token."""
        return decode(self.problem(a, b).tokens[:-1])


def task_places() -> list[Location]:
    """Return where tasks are defined, in this folder and installed packages, importing none."""
    files = in_folder(_TASKS, "tape_arith.arith.tasks")
    return [
        *(place for place in files if place.name != "task"),
        *installed("tape_arith.tasks"),
    ]


def tasks() -> list[str]:
    """Return the names of all tasks, importing none."""
    return sorted({place.name for place in task_places()})


@lru_cache
def load_task(name: str) -> Task:
    """Return the task of this name.

    Raises UsageError if no task has this name (it suggests the nearest), if two have it, or if the
    file or package does not define exactly one task.
    """
    if name not in tasks():
        raise unknown("task", name, tasks())
    place = select("task", task_places(), name)
    module = place.load()
    leaves = [
        value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Task)
        and (key == place.class_name if place.class_name else value.__module__ == module.__name__)
    ]
    if len(leaves) != 1:
        wanted = f"the task '{place.class_name}'" if place.class_name else "exactly one task"
        raise UsageError(f"{place} must define {wanted}, not {len(leaves)}")
    task: Task = leaves[0]()
    task.name = name
    try:
        token(task.symbol)
    except ValueError as error:
        raise UsageError(f"{place}: the symbol of task {name}: {error}") from error
    return task


def _tokens(digits: Digits, width: int) -> UInt8:
    """Return the ids of digits, uint8[n, width], with PAD (0) after the last of each number."""
    offsets = prefixes(width) * np.uint8(DIGIT_ZERO)
    return digits.values[:, :width] + offsets.take(digits.lengths, axis=0)


@lru_cache(maxsize=16)
def prefixes(width: int) -> UInt8:
    """Return uint8[width + 1, width]: row l has l ones, then zeros. Cached: do not write to it."""
    return np.tri(width + 1, width, k=-1, dtype=np.uint8)


def _digits(number: int, width: int) -> Digits:
    text = str(number)[::-1]
    values = np.array([[int(digit) for digit in text.ljust(width, "0")]], dtype=np.uint8)
    return Digits(values, np.array([len(text)]))


# ---- tokens and random words ---------------------------------------------------------------


def token(symbol: str) -> int:
    """Return the id of a symbol. Raises ValueError if the vocabulary lacks it."""
    if symbol not in _IDS:
        raise ValueError(f"no token for {symbol!r}: the vocabulary has {SYMBOLS!r}")
    return _IDS[symbol]


def decode(ids: Iterable[int]) -> str:
    """Return the text of `ids`; tokens without a symbol appear by name.

    >>> decode([5, 6, 14, 13, 17, 5, 6, 3])
    '12+9=12[EOS]'
    """
    names = [*SPECIAL, *SYMBOLS]
    return "".join(names[int(number)] for number in ids)


def words(
    key: tuple[str | int, ...], start: int, count: int, words_each: int
) -> npt.NDArray[np.uint64]:
    """Return random words uint64[count, words_each] of the indices start .. start + count - 1.

    Different keys give independent streams. A word also depends on `words_each`: index i has the
    counters from i * ceil(words_each / 4) on. So always use a key with the same `words_each`.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    counters_each = -(-words_each // _WORDS_PER_COUNTER)
    first = start * counters_each
    generator = np.random.Philox(
        key=np.frombuffer(digest, dtype="<u8", count=2).astype(np.uint64),
        counter=np.array([first & _MASK, first >> 64, 0, 0], dtype=np.uint64),
    )
    row = counters_each * _WORDS_PER_COUNTER
    raw: npt.NDArray[np.uint64] = generator.random_raw(count * row).reshape(count, row)
    return raw[:, :words_each]


def half_words(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return the 32-bit halves of words [n, m], the lower half first: uint32[n, 2 m]."""
    # "<" gives the same halves in the same order on a big-endian machine.
    return np.ascontiguousarray(raw, dtype="<u8").view("<u4")


def below(
    bound: int | npt.NDArray[np.int64], halves: npt.NDArray[np.uint32]
) -> npt.NDArray[np.int64]:
    """Return integers 0 .. bound - 1 from 32-bit words; one bound for all, or one per word.

    Multiplying and shifting rejects no word, so each index needs a fixed number of words. In
    return, probabilities have a relative error of up to bound / 2**32 (10**4: 2.4e-6).
    """
    product = np.multiply(halves, np.asarray(bound, np.uint64), dtype=np.uint64)
    return (product >> np.uint64(32)).view(np.int64)  # below 2**32: the view is exact
