"""The ids of tokens, the same as in the field's own files, so that token files compare."""

from collections.abc import Iterable

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
SYMBOLS = "0123456789+-x= "
SIZE = len(SPECIAL) + len(SYMBOLS)
DIGIT_ZERO = len(SPECIAL)
"""Digit d has the id DIGIT_ZERO + d."""

_IDS = {symbol: number for number, symbol in enumerate(SYMBOLS, start=len(SPECIAL))}

TO_TEXT = bytes.maketrans(bytes([EOS, *range(DIGIT_ZERO, SIZE)]), f"\n{SYMBOLS}".encode())
"""For `bytes.translate`: from ids to text, one problem a line (the end token ends the line)."""


def token(symbol: str) -> int:
    """The id of one symbol; ValueError (of a task's author) for what the vocabulary lacks."""
    if symbol not in _IDS:
        raise ValueError(f"no token for {symbol!r}: the vocabulary has {SYMBOLS!r}")
    return _IDS[symbol]


def decode(ids: Iterable[int]) -> str:
    """The text of `ids`; tokens without a symbol by their names.

    >>> decode([5, 6, 14, 13, 17, 5, 6, 3])
    '12+9=12[EOS]'
    """
    names = [*SPECIAL, *SYMBOLS]
    return "".join(names[int(number)] for number in ids)
