"""Define tasks in plain text, one problem at a time: any grammar, slower than arrays of digits."""

from abc import abstractmethod
from collections.abc import Iterable
from random import Random

import numpy as np

from tape_arith.arith.tasks.families.numbers import Int64, UInt32
from tape_arith.arith.tasks.families.tokens import PAD
from tape_arith.arith.tasks.families.writing import Field, Order, Writer
from tape_arith.arith.tasks.task import Axis, Task


class TextTask(Task[list[str]]):
    """Base of tasks on text. A subclass defines `question`, `solution`, `measure` and `most`.

    Texts consist of digits and of the task's `symbols`.
    """

    axes: tuple[Axis, ...] = (Axis("digits", "digits"),)
    digit_order: Order | None = None

    @abstractmethod
    def question(self, rng: Random, *lengths: int) -> str:
        """Draw a question of these lengths, one on each axis; `rng` is the only randomness."""

    @abstractmethod
    def solution(self, question: str) -> str:
        """Return the one right answer to a question."""

    @abstractmethod
    def measure(self, question: str) -> tuple[int, ...]:
        """Return the lengths of a question that a person wrote.

        Raises ValueError if it is no question.
        """

    @abstractmethod
    def most(self, *lengths: int) -> tuple[int, int]:
        """Return the most characters of a question and of its solution, from the lengths alone."""

    def words_each(self, most: tuple[int, ...]) -> int:
        return 1

    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> list[str]:
        seeds = halves[:, 0].astype(np.uint64) << np.uint64(32) | halves[:, 1]
        rows = zip(seeds.tolist(), lengths.tolist(), strict=True)
        return [self.question(Random(seed), *row) for seed, row in rows]

    def prompt(self, drawn: list[str], write: Writer) -> list[Field]:
        return [self._field(drawn)]

    def answer_fields(self, drawn: list[str], write: Writer) -> list[Field]:
        return [self._field(map(self.solution, drawn))]

    def places(self, lengths: Int64) -> Int64:
        return self._most(lengths).max(axis=1)

    def prompt_bound(self, lengths: Int64) -> Int64:
        return self._most(lengths)[:, 0] + len("=") + self.format.spaces

    def answer_bound(self, lengths: Int64) -> Int64:
        return self._most(lengths)[:, 1]

    def read(self, written: str) -> tuple[list[str], Int64]:
        question = written.replace(" ", "")
        try:
            return [question], np.array([self.measure(question)])
        except ValueError as error:
            raise self.not_a_problem(written) from error

    def _most(self, lengths: Int64) -> Int64:
        different, inverse = np.unique(lengths, axis=0, return_inverse=True)
        return np.array([self.most(*row) for row in different.tolist()])[inverse.ravel()]

    def _field(self, texts: Iterable[str]) -> Field:
        """Write texts as tokens. Raises ValueError for a symbol that the vocabulary lacks."""
        token = {symbol: self.vocabulary.token(symbol) for symbol in "0123456789" + self.symbols}
        rows = [[token.get(s) or self.vocabulary.token(s) for s in text] for text in texts]
        lengths = np.array(list(map(len, rows)))
        tokens = np.full((len(rows), lengths.max(initial=0)), PAD, np.uint8)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = ids
        return Field(tokens, lengths)
