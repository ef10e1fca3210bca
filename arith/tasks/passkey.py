"""Find a key hidden in random digits."""

import re
from typing import NamedTuple

import numpy as np

from tape_arith.arith.tasks.families.numbers import (
    Digits,
    Int64,
    UInt32,
    digits_of,
    drawn_digits,
    num_quads,
)
from tape_arith.arith.tasks.families.writing import Field, Format, Order, Writer, check_range
from tape_arith.arith.tasks.task import Axis, Task


class Haystack(NamedTuple):
    """Strings of digits: what comes before the key, the key, and what comes after it."""

    before: Digits
    key: Digits
    after: Digits


class Passkey(Task[Haystack]):
    """The digits between the two signs, at some depth of a haystack of random digits.

    >>> Passkey().text("3141#271#5926")
    '3141#271#5926=271'

    At depth 1 the key comes before all digits of the haystack, at the last depth after them; the
    others are evenly between, rounded down. All digits are drawn alike, so that the signs alone
    tell where the key is, as in passkey retrieval (Mohtashami and Jaggi 2023, arXiv 2305.16300).

    key     digits of the key
    depths  number of depths
    spaces  most blanks at random places of the prompt
    """

    version = 1
    symbols = "#"
    separators = "#="
    digit_order: Order | None = None

    def __init__(self, *, key: int = 3, depths: int = 8, spaces: int = 0) -> None:
        check_range("key", key, 1, 100)
        check_range("depths", depths, 2, 100)
        super().__init__(Format(spaces=spaces))
        self.key, self.depths, self.chance = key, depths, 10.0**-key
        self.axes = (
            Axis("depth of the key from the start", "depth", counts="places", places=depths),
            Axis("digits of haystack", "haystack"),
        )
        self.example = f"3141#{('271' * key)[:key]}#5926"

    def words_each(self, most: tuple[int, ...]) -> int:
        return -(-(2 * num_quads(most[1]) + num_quads(self.key)) // 2)

    def draw(self, lengths: Int64, halves: UInt32, most: tuple[int, ...]) -> Haystack:
        depth, haystack = lengths.T
        cut, quads = (depth - 1) * haystack // (self.depths - 1), num_quads(most[1])
        sizes = (cut, np.full_like(cut, self.key), haystack - cut)
        ends = np.cumsum([quads, num_quads(self.key), quads])
        return Haystack(*map(drawn_digits, sizes, np.split(halves[:, : ends[2]], ends[:2], axis=1)))

    def prompt(self, drawn: Haystack, write: Writer) -> list[Field]:
        before, key, after = map(write.string, drawn)
        return [before, write.symbol("#"), key, write.symbol("#"), after]

    def answer_fields(self, drawn: Haystack, write: Writer) -> list[Field]:
        return [write.string(drawn.key)]

    def places(self, lengths: Int64) -> Int64:
        return np.maximum(lengths[:, 1], self.key)

    def prompt_bound(self, lengths: Int64) -> Int64:
        return lengths[:, 1] + self.key + len("##=") + self.format.spaces

    def answer_bound(self, lengths: Int64) -> Int64:
        return np.full(len(lengths), self.key)

    def read(self, written: str) -> tuple[Haystack, Int64]:
        strings = re.fullmatch(rf"(\d*)#(\d{{{self.key}}})#(\d*)", written.replace(" ", ""), re.A)
        if strings is None or not strings[1] + strings[3]:
            raise self.not_a_problem(written)
        cut, haystack = len(strings[1]), len(strings[1] + strings[3])
        depth = 1 - -cut * (self.depths - 1) // haystack  # of a key between two depths the deeper
        drawn = Haystack(*(digits_of([string[::-1]]) for string in strings.groups()))
        return drawn, np.array([[depth, haystack]])
