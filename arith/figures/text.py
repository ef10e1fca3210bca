"""Text in figures: fonts that have its letters, its width as drawn, fitting it into its room.

All of it is plain: no character is markup, so a `$` is drawn as a `$`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from math import inf
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import (
    FontProperties,
    findfont,
    findSystemFonts,
    fontManager,
    get_font,
)
from matplotlib.text import Text

from tape_arith.arith.errors import UsageError

DPI = 300
SMALLEST = 4.0
"""The smallest letters that can be read, in points."""
# Fonts with pieces of formulas, with boxes for every character, or hidden from people.
_NO_LETTERS = ("cm", "STIXNonUni", "STIXSiz", "Last", "Adobe Blank", ".")


# ---- fonts -------------------------------------------------------------------------------------


def known_font(name: str) -> str:
    """Return the name of a font, or of a family such as serif. Raises UsageError if unknown."""
    try:
        findfont(FontProperties(family=name), fallback_to_default=False)
    except ValueError:
        raise UsageError(
            f"no font is called '{name}' here: give serif, sans-serif, monospace or the name of an "
            "installed font"
        ) from None
    return name


def families(text: str, weight: str = "normal") -> list[str]:
    """Return the font families for `text`: those set, then those with the letters it lacks."""
    return [*mpl.rcParams["font.family"], *_fallbacks(_lacking(text, weight))[0]]


def _font(weight: str) -> str:
    """Return the file of the font that is set."""
    return findfont(FontProperties(family=mpl.rcParams["font.family"], weight=weight))


def letters_without_font(text: str) -> str:
    """Return the letters of `text` that no font of this machine has; boxes stand for them."""
    return _fallbacks(_lacking(text, "normal"))[1]


def _lacking(text: str, weight: str) -> frozenset[str]:
    """Return the letters of `text` that the font that is set lacks."""
    if text.isascii():
        return frozenset()
    font_letters = _letters(_font(weight))
    return frozenset(letter for letter in text if letter.isprintable()) - font_letters


@cache
def _fallbacks(lacking: frozenset[str]) -> tuple[list[str], str]:
    """Return the fewest families that together have the letters, and those that none has."""
    chosen: list[str] = []
    left = set(lacking)
    while left:
        name, letters = max(_others().items(), key=lambda font: len(left & font[1]))
        if left.isdisjoint(letters):
            break
        chosen.append(name)
        left -= letters
    return chosen, "".join(sorted(left))


@cache
def _others() -> dict[str, frozenset[str]]:
    """Return the letters of each upright family, also of those newer than matplotlib's cache."""
    known = {font.fname for font in fontManager.ttflist}
    for path in set(findSystemFonts()) - known:
        with suppress(Exception):  # each version has its own errors for what it cannot read
            fontManager.addfont(path)
    regular_last = sorted(
        fontManager.ttflist, key=lambda font: (font.weight in (400, "normal"), font.fname)
    )
    regular = {
        font.name: font.fname
        for font in regular_last
        if font.style == "normal" and not font.name.startswith(_NO_LETTERS)
    }
    return {name: _letters(path) for name, path in sorted(regular.items())}


@cache
def _letters(path: str) -> frozenset[str]:
    with suppress(OSError, RuntimeError):  # removed since, or damaged
        return frozenset(map(chr, get_font(path).get_charmap()))
    return frozenset()


# ---- width -------------------------------------------------------------------------------------


@cache
def _ruler() -> Any:
    return FigureCanvasAgg(Figure(dpi=DPI)).get_renderer()  # type: ignore[no-untyped-call]


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a line of text as it is drawn in letters of `size`, both in points."""
    return _width(text, size, weight, _font(weight))


@lru_cache(maxsize=4096)  # a name is measured several times
def _width(text: str, size: float, weight: str, _font: str) -> float:
    font = FontProperties(family=families(text, weight), weight=weight, size=size)
    width, _, _ = _ruler().get_text_width_height_descent(text, font, ismath=False)
    return float(width) * 72 / DPI


def lines(text: str, width: float, size: float) -> list[str]:
    """Break `text`, in letters of `size`, into lines no wider than `width`; both are in points."""
    letters = max(1, int(width / (0.51 * size)))  # right for prose; digits and signs are wider
    while letters > 1 and any(text_width(line, size) > width for line in wrap(text, letters)):
        letters -= 1
    return wrap(text, letters)


def fit(
    text: str, width: float, size: float, weight: str = "normal", *, uncut: bool = False
) -> tuple[str, float]:
    """Return `text` and a letter size, at most `size`, so that it fits in `width` points.

    A name too long for the smallest readable letters loses its beginning, since the end tells
    names of one encoding apart. What must stay `uncut`, such as a number, gets smaller letters.
    """
    smallest = min(size, max(SMALLEST, 0.6 * size)) if not uncut else 1.0
    while not uncut and len(text) > 2 and text_width(text, smallest, weight) > width:
        text = "\N{HORIZONTAL ELLIPSIS}" + text[2:]
    # Each letter begins at a whole pixel, so the width is not proportional to the size.
    while size > smallest and (drawn := text_width(text, size, weight)) > width:
        size = max(smallest, 0.995 * size * width / drawn)
    return text, size


def fit_artist(text: Text, width: float, *, uncut: bool = False) -> None:
    """Make each line of a drawn text fit in `width` points, all in letters of one size."""
    size, weight = float(text.get_fontsize()), str(text.get_fontweight())
    fitted = [fit(line, width, size, weight, uncut=uncut) for line in text.get_text().split("\n")]
    text.set(text="\n".join(line for line, _ in fitted), fontsize=min(size for _, size in fitted))


def fit_alike(groups: Iterable[Iterable[Text]], room: Callable[[Text], float]) -> None:
    """Make texts fit, uncut: those of a group in one size, no larger than that of the one before.

    `room` gives the width that is left for a text, in points, once those before it are fitted.
    """
    size = inf
    for group in map(tuple, groups):
        for text in group:
            fit_artist(text, room(text), uncut=True)
        size = min([size, *(float(text.get_fontsize()) for text in group)])
        for text in group:
            text.set_fontsize(size)
