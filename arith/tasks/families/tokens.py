"""Tokens and their ids. The first ids agree with the files published in this field."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from string import ascii_letters

from tape_arith.arith.tasks.families.numbers import UInt8

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
SYMBOLS = "0123456789+-x= "
"""Symbols of every task, in the order of their ids; a task's own symbols follow."""
DIGIT_ZERO = len(SPECIAL)
"""Digit d has the id DIGIT_ZERO + d."""
BLANK = DIGIT_ZERO + SYMBOLS.index(" ")

_LATIN_LETTERS = "".join(letter for letter in map(chr, range(0xA0, 0x100)) if letter.isalpha())
MARKERS = ascii_letters.replace("x", "") + _LATIN_LETTERS
"""Symbols of index hints, in the order of places; keys of `recall`. One byte each, in Latin-1."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a task: SPECIAL, SYMBOLS and `own`, the symbols of this task alone.

    >>> Vocabulary("|").decode([5, 19, 6, 17, 3])
    '1|2=[EOS]'
    """

    own: str = ""

    def __post_init__(self) -> None:
        if wrong := [symbol for symbol in self.own if ord(symbol) > 0xFF]:
            raise ValueError(
                f"{wrong[0]!r} in `symbols` is not in Latin-1, and a text file has a byte a token: "
                "take another symbol"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The text of each token, in the order of ids."""
        return (*SPECIAL, *SYMBOLS, *self.own)

    def __len__(self) -> int:
        return len(self.names)

    def token(self, symbol: str) -> int:
        """Return the id of a symbol. Raises ValueError if the vocabulary lacks it."""
        if symbol not in self.names:
            raise ValueError(
                f"no token for {symbol!r}: the vocabulary has {SYMBOLS + self.own!r}; `symbols` "
                "names others that a task has"
            )
        return self.names.index(symbol)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`; special tokens appear by name."""
        return "".join(self.names[int(number)] for number in ids)

    def lines(self, tokens: UInt8) -> str:
        """Return the text of whole problems, one per line; the end token ends a line."""
        return tokens.tobytes().translate(self._to_latin).decode("latin-1")

    @cached_property
    def _to_latin(self) -> bytes:
        ids = bytes([EOS, *range(DIGIT_ZERO, len(self))])
        return bytes.maketrans(ids, f"\n{SYMBOLS}{self.own}".encode("latin-1"))
