"""The interface of a task. A problem is a prompt that ends with '=', an answer and the end token.

n  problems
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from tape_arith.arith.errors import UsageError
from tape_arith.arith.tasks.families.carries import longest_chains
from tape_arith.arith.tasks.families.numbers import Int64, UInt8, UInt32
from tape_arith.arith.tasks.families.random_words import below
from tape_arith.arith.tasks.families.tokens import BLANK, EOS, MARKERS, PAD, Vocabulary
from tape_arith.arith.tasks.families.writing import Field, Format, Order, Writer

Drawn = TypeVar("Drawn")

_TRIES = 32
"""Number of draws from which a problem of the split `carry` is chosen."""


class Axis(NamedTuple):
    """A length of a problem, or a place in it, which a grid's rows or columns count.

    A place does not make a problem longer: 1 to `places` are trained and tested at any length, so
    that nothing is out of distribution along it.

    name      for people, as in "digits of a"; of a place as in "depth of the key from the start"
    column    in tables of cells, as in "digits_a"
    counts    "digits": a preset limits it by trained_digits and tested_digits; "operands": by
              trained_operands and tested_operands; "places": `places` is its limit
    shortest  the least length that has problems
    places    number of places; 0 of a length
    """

    name: str
    column: str
    counts: Literal["digits", "operands", "places"] = "digits"
    shortest: int = 1
    places: int = 0

    @property
    def is_place(self) -> bool:
        return self.counts == "places"


class Problems(NamedTuple):
    """n problems, end to end without padding."""

    tokens: UInt8
    """uint8[sum(lengths)]: the tokens of all problems, each with its end token"""
    lengths: Int64
    """int64[n]: tokens of each problem, the end token included"""
    prompt_lengths: Int64
    """int64[n]: tokens of each problem through '='"""
    axis_lengths: Int64
    """int64[n, axes]: the length of each problem on each axis of the task"""
    final_lengths: Int64
    """int64[n]: bounds on `lengths` from the prompts alone (true lengths reveal carries)"""

    @property
    def starts(self) -> Int64:
        """int64[n]: index of each problem's first token."""
        return np.cumsum(self.lengths) - self.lengths

    def inserted(self, token: int, places: Int64, counts: Int64) -> "Problems":
        """Insert a token before each of `places` in `tokens`, `counts` of them in each prompt."""
        return self._replace(
            tokens=np.insert(self.tokens, places, token),
            lengths=self.lengths + counts,
            prompt_lengths=self.prompt_lengths + counts,
            final_lengths=self.final_lengths + counts,
        )


def concatenate(parts: Sequence[Problems]) -> Problems:
    """Join the problems of one or more parts."""
    return Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def take(problems: Problems, indices: Int64) -> Problems:
    """Select the problems at `indices`, int64[m], in that order."""
    lengths = problems.lengths[indices]
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    tokens = problems.tokens[np.repeat(problems.starts[indices], lengths) + inside]
    return Problems(tokens, *(field[indices] for field in problems[1:]))


class Task(ABC, Generic[Drawn]):
    """One kind of problem. Its keyword-only arguments are its options.

    `Drawn` holds the operands of n problems, such as two arrays of digits. A family (TwoOperands,
    OneString, ListOfNumbers) defines most methods; a leaf defines the answer.
    """

    base: ClassVar[int] = 10
    """Digits are 0 to base - 1."""
    version: ClassVar[int]
    """Incremented when problems change: datasets and results of two versions never mix."""
    axes: tuple[Axis, ...]
    example: str
    """A problem as people write it."""
    symbols: str = ""
    """Symbols that only this task's vocabulary has."""
    step_symbols: str = ""
    """Symbols that end a step of a scratchpad; the final answer follows the last one."""
    writing_rule: ClassVar[str] = ""
    """A rule that `example` does not show, for the error about an invalid problem."""
    separators: str = "="
    """Symbols that end a part of the prompt; '=' is the last."""
    coupled: ClassVar[Literal["alike", "mirrored"] | None] = None
    """The pairs of Position Coupling (Cho et al. 2024), digits counted as written: digit k of the
    answer with digit k of each operand, or with digit k from the end; None: not coupled."""
    chance: float = 0.0
    """Share of problems that the best guess gets right, if it does not fall with length."""
    needs_positions: ClassVar[bool] = True
    """Whether the answer depends on the order of the tokens."""
    name: str = ""
    """Value of --task, without default options; `load_task` sets it."""

    def __init__(self, format: Format | None = None) -> None:
        self.format = format or Format()

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.symbols + self.format.symbols)

    @property
    def digit_order(self) -> Order | None:
        """The order of digits in the answer; None if digits have no places, as in a string."""
        return self.format.order

    @abstractmethod
    def words_each(self, most: tuple[int, ...]) -> int:
        """Return the number of random 64-bit words per problem, up to these lengths."""

    @abstractmethod
    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Drawn:
        """Draw problems of given lengths.

        lengths  int64[n, axes]
        halves   uint32[n, 2 * words_each(most)]: random half words, the only randomness
        most     the greatest length on each axis
        """

    @abstractmethod
    def prompt(self, drawn: Drawn, write: Writer) -> list[Field]:
        """Write the prompts without '='."""

    @abstractmethod
    def answer_fields(self, drawn: Drawn, write: Writer) -> list[Field]:
        """Write the answers without the end token."""

    @abstractmethod
    def prompt_bound(self, lengths: Int64) -> Int64:
        """Return the most tokens of a prompt with its '=': int64[n], for int64[n, axes]."""

    @abstractmethod
    def answer_bound(self, lengths: Int64) -> Int64:
        """Return the most tokens of an answer without its end token: int64[n], for int64[n, axes].

        It depends on nothing else, because the true length would reveal a last carry.
        """

    @abstractmethod
    def places(self, lengths: Int64) -> Int64:
        """Return the most digits of a number in such a problem, its answer included.

        Index hints and an encoding's table of places must reach them.
        """

    @abstractmethod
    def read(self, written: str) -> tuple[Drawn, Int64]:
        """Read a problem written as in `example`; return it and its lengths, int64[1, axes].

        Raises UsageError if it is not a problem of this task.
        """

    def columns(self, drawn: Drawn) -> Int64:
        """Return the sum of digits at each place of the answer before any carry.

        int64[n, places], the least significant first. A task that defines this has carries: the
        split `carry`, and chains in studies of errors.
        """
        raise UsageError(f"task {self.name} has no carries")

    @property
    def has_carries(self) -> bool:
        return type(self).columns is not Task.columns

    def carry_chains(self, drawn: Drawn) -> Int64:
        """Return the length of the longest carry chain of each problem, int64[n]."""
        return longest_chains(self.columns(drawn), self.base)

    def hard_halves(self, most: tuple[int, ...]) -> int:
        """Return the number of half words per problem of the split `carry`, up to these lengths."""
        return 1 + _TRIES * 2 * self.words_each(most)

    def draw_hard(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Drawn:
        """Draw problems of the split `carry`: hard by their digits, not by their lengths.

        Of 32 draws this takes the one whose longest carry chain is nearest to a length drawn
        uniformly from 1 .. the longest chain of all 32. A task whose chains are rarer overrides it.

        Half words: for that length, then for each draw.
        """
        tries = halves[:, 1:].reshape(len(halves), _TRIES, 2 * self.words_each(most))
        drawn = (self.draw(lengths, tries[:, k], most) for k in range(_TRIES))
        chains = np.stack([self.carry_chains(problems) for problems in drawn], axis=1)
        wanted = 1 + below(chains.max(axis=1), halves[:, 0])
        nearest = np.abs(chains - wanted[:, None]).argmin(axis=1)
        return self.draw(lengths, tries[np.arange(len(tries)), nearest], most)

    def longest(self, most: tuple[int, ...]) -> int:
        """Return the number of tokens of the longest problem with its end token.

        Raises UsageError if the hints do not reach the longest number.
        """
        lengths = np.array([most])
        places = int(self.places(lengths)[0])
        if self.format.hints and places > self.format.markers:
            more = f"markers={places} or more, or " * (places <= len(MARKERS))
            raise UsageError(
                f"task {self.name} has numbers of up to {places} digits, and {self.format.markers} "
                f"markers do not reach them: give {more}fewer digits"
            )
        return int(self.final_lengths(lengths, self.prompt_bound(lengths))[0])

    def final_lengths(self, lengths: Int64, prompt_lengths: Int64) -> Int64:
        """Bound each problem's number of tokens from its prompt alone: int64[n].

        Addition: prompt + the longer operand + 2, for the last carry and the end token.
        """
        return prompt_lengths + self.answer_bound(lengths) + 1

    @property
    def num_format_halves(self) -> int:
        """Number of half words for the first marker, the number of blanks and their places."""
        blanks = 1 + self.format.spaces if self.format.spaces else 0
        return int(self.format.hints) + blanks

    def problems(self, drawn: Drawn, lengths: Int64, format_halves: UInt32) -> Problems:
        """Write n problems.

        lengths        int64[n, axes]
        format_halves  uint32[n, num_format_halves]

        Raises UsageError if an answer is longer than its `answer_bound` or a number has digits
        beyond its length.
        """
        first_markers = np.zeros(len(lengths), np.int64)
        if self.format.hints:
            free = self.format.markers - self.places(lengths)
            first_markers = below(1 + free, format_halves[:, 0])
        write = Writer(self.format, self.vocabulary, first_markers)
        prompt = [*self.prompt(drawn, write), write.symbol("=")]
        answer = self.answer_fields(drawn, write)
        prompt_lengths, answer_lengths = (
            np.sum([field.lengths for field in fields], axis=0) for fields in (prompt, answer)
        )
        self._check_bound(answer_lengths, self.answer_bound(lengths))
        # Each field has a slot of one width, with PAD where it has no token, so that one selection
        # drops the PADs of all problems. Computing each token's index takes twice as long.
        end = np.full((len(lengths), 1), EOS, np.uint8)
        slots = np.concatenate([field.tokens for field in (*prompt, *answer)] + [end], axis=1)
        problems = Problems(
            tokens=slots[slots != PAD],
            lengths=prompt_lengths + answer_lengths + 1,
            prompt_lengths=prompt_lengths,
            axis_lengths=lengths,
            final_lengths=self.final_lengths(lengths, prompt_lengths),
        )
        if len(problems.tokens) != problems.lengths.sum():
            raise UsageError(
                f"task {self.name} has a number with digits beyond its length: make its values 0 "
                "from its length on"
            )
        if not self.format.spaces:
            return problems
        return _with_blanks(problems, format_halves[:, -1 - self.format.spaces :])

    def _check_bound(self, answer_lengths: Int64, bounds: Int64) -> None:
        if (answer_lengths > bounds).any():
            worst = int(np.argmax(answer_lengths - bounds))
            raise UsageError(
                f"task {self.name} gives an answer of {answer_lengths[worst]} tokens where its "
                f"answer_bound says {bounds[worst]} at most: fix one of the two"
            )

    def final_answer(self, answer: Sequence[int]) -> list[int]:
        """Return the tokens of an answer after the steps of its scratchpad."""
        steps = set(map(self.vocabulary.token, self.step_symbols))
        ends = [place + 1 for place, token in enumerate(answer) if token in steps]
        return list(answer[max(ends, default=0) :])

    def not_a_problem(self, written: str) -> UsageError:
        """Return the error that `read` raises."""
        rule = ", without = and the answer" if "=" in written else self.writing_rule
        return UsageError(
            f"'{written}' is no problem of {self.name}: write it as in {self.example}{rule}"
        )

    def parse(self, written: str) -> Problems:
        """Return the problem written as in `example`, with the first markers and no blanks.

        Raises UsageError if it is not a problem of this task.
        """
        drawn, lengths = self.read(written)
        self.longest(tuple(lengths[0].tolist()))
        return self.problems(drawn, lengths, np.zeros((1, self.num_format_halves), np.uint32))

    def text(self, written: str) -> str:
        """Return the tokens of one problem as text, without the end token."""
        return self.vocabulary.decode(self.parse(written).tokens[:-1])


def _with_blanks(problems: Problems, halves: UInt32) -> Problems:
    """Put 0 to P blanks before random tokens of each prompt; halves: a number, then P places."""
    spaces = halves.shape[1] - 1
    counts = below(spaces + 1, halves[:, 0])
    places = problems.starts[:, None] + below(problems.prompt_lengths[:, None], halves[:, 1:])
    return problems.inserted(BLANK, places[np.arange(spaces) < counts[:, None]], counts)
