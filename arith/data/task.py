"""What a task is, and how its problems become tokens: `a OP b = c` and the end token.

A task is one file in `arith/data/tasks`; the file's name is the task's name. The base class lays
out the tokens; a leaf says its version, its symbol and how the digits of its answer come about.

    n  problems        W  most digits of an operand        C  most digits of an answer

Digits stand least significant first everywhere, in arrays as in tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from arith.data import vocabulary
from arith.errors import unknown

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_TASKS = Path(__file__).parent / "tasks"


class Digits(NamedTuple):
    """Numbers of any length: digit k of number r is `values[r, k]`, 0 from `lengths[r]` on."""

    values: UInt8
    """uint8[n, at least the longest length], in C order"""
    lengths: Int64
    """int64[n]: how many digits each number has"""


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
    """int64[n]: bounds on `lengths` from the prompts alone (the true length tells of a carry)"""


def concatenate(parts: Sequence[Problems]) -> Problems:
    """Problems end to end, of one part or more."""
    if len(parts) == 1:  # nothing to copy
        return parts[0]
    return Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class Task(ABC):
    """One kind of problem. A leaf gives `version`, `symbol`, `answer_width` and `answer`."""

    version: ClassVar[int]
    """Raised whenever a problem changes: datasets and results of two versions never mix."""
    symbol: ClassVar[str]
    """The operator, one symbol of the vocabulary."""

    @property
    def name(self) -> str:
        """The name of the leaf's file, with dashes."""
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    @abstractmethod
    def answer_width(self, max_digits: int) -> int:
        """The most digits that an answer has when no operand has more than `max_digits`."""

    @abstractmethod
    def answer(self, a: Digits, b: Digits) -> Digits:
        """The answers. `a` and `b` may be of different lengths, but their arrays have one shape."""

    def longest(self, max_digits: int) -> int:
        """Tokens of the longest problem, the end token included."""
        prompt = int(self.prompt_lengths(np.full((1, 2), max_digits))[0])
        return prompt + self.answer_width(max_digits) + 1

    def prompt_lengths(self, operand_lengths: Int64) -> Int64:
        """int64[n] from int64[n, 2]: tokens through '=': the operands, the symbol and '='."""
        return operand_lengths[:, 0] + operand_lengths[:, 1] + 2  # not sum(): 20 times slower

    def final_lengths(self, operand_lengths: Int64) -> Int64:
        """int64[n] from int64[n, 2]: a bound on a problem's tokens, known from its prompt alone.

        Addition: prompt + max(operand_lengths) + 2, for the last carry and the end token.
        """
        most = operand_lengths.max(axis=1)
        answers = np.array([self.answer_width(digits) for digits in range(most.max(initial=0) + 1)])
        bounds: Int64 = self.prompt_lengths(operand_lengths) + answers[most] + 1
        return bounds

    def problems(self, a: Digits, b: Digits, max_digits: int) -> Problems:
        """The tokens of n problems whose operands have at most `max_digits` digits."""
        c = self.answer(a, b)
        # Each field has a fixed slot that starts where it may start at the earliest, PAD after its
        # last token: dropping the PADs is then one selection for all problems. Twice as fast as
        # working out each token's place.
        width = max_digits
        second, third = width + 1, 2 * width + 2
        slots = np.empty((len(a.lengths), self.longest(max_digits)), dtype=np.uint8)
        slots[:, :width] = _tokens(a)[:, :width]
        slots[:, width] = vocabulary.token(self.symbol)
        slots[:, second : second + width] = _tokens(b)[:, :width]
        slots[:, second + width] = vocabulary.token("=")
        slots[:, third:-1] = _tokens(c)[:, : slots.shape[1] - 1 - third]
        slots[:, -1] = vocabulary.EOS

        operand_lengths = np.stack([a.lengths, b.lengths], axis=1)
        prompt_lengths = self.prompt_lengths(operand_lengths)
        return Problems(
            tokens=slots[slots != vocabulary.PAD],
            lengths=prompt_lengths + c.lengths + 1,
            prompt_lengths=prompt_lengths,
            operand_lengths=operand_lengths,
            final_lengths=self.final_lengths(operand_lengths),
        )

    def text(self, a: int, b: int) -> str:
        """One problem as it is written, without its end token: for examples and tests."""
        width = len(str(max(a, b)))
        problems = self.problems(_digits(a, width), _digits(b, width), width)
        return vocabulary.decode(problems.tokens[:-1])


def tasks() -> list[str]:
    """The names of all tasks: the files of the folder, none of them imported."""
    files = (path.stem for path in _TASKS.glob("*.py") if not path.stem.startswith("_"))
    return sorted(name.replace("_", "-") for name in files)


@lru_cache
def load_task(name: str) -> Task:
    """The task of this name. Errors: UsageError, naming the nearest, where there is none."""
    if name not in tasks():
        raise unknown("task", name, tasks())
    module = import_module(f"arith.data.tasks.{name.replace('-', '_')}")
    leaves = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Task)
        and value.__module__ == module.__name__
    ]
    assert len(leaves) == 1, f"{module.__file__} must define exactly one task"
    leaf: Task = leaves[0]()
    return leaf


def _tokens(digits: Digits) -> UInt8:
    """The digits' ids, and PAD (0) after the last digit of each number."""
    return digits.values + _digit_ids(digits.values.shape[1]).take(digits.lengths, axis=0)


@lru_cache(maxsize=16)
def _digit_ids(width: int) -> UInt8:
    """uint8[width + 1, width]: row l holds l times the id of zero, then PAD."""
    return prefixes(width) * np.uint8(vocabulary.DIGIT_ZERO)


@lru_cache(maxsize=16)
def prefixes(width: int) -> UInt8:
    """uint8[width + 1, width]: row l holds l ones, then zeros. Not to be written to."""
    return np.tri(width + 1, width, k=-1, dtype=np.uint8)


def _digits(number: int, width: int) -> Digits:
    text = str(number)[::-1]
    values = np.zeros((1, width), dtype=np.uint8)
    values[0, : len(text)] = [int(digit) for digit in text]
    return Digits(values, np.array([len(text)]))
