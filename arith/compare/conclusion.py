"""Say what a leaderboard shows: who is first, by how much, and who is not told apart from it."""

from collections.abc import Iterator, Sequence

from tape_arith.arith.compare.board import Board, Row, Section
from tape_arith.arith.compare.captions import NBSP, percent_of
from tape_arith.arith.compare.effects import RANKED_BY, points

_MOST_NAMED = 4
"""The most encodings that a sentence lists by name."""


def conclusion(board: Board) -> list[str]:
    """Return a paragraph for each section with ranks, in their order."""
    ranked = [section for section in board.sections if any(row.rank for row in section.rows)]
    return [" ".join(_sentences(board, section)) for section in ranked] or [
        "Nothing is ranked: no encoding fits the trained lengths with every seed."
    ]


def _sentences(board: Board, section: Section[Row]) -> Iterator[str]:
    rows = [row for row in section.rows if row.rank]
    first, several = rows[0], [row for row in rows if len(row.panel.seeds) > 1]
    means, seeds = percent_of(first.panel, RANKED_BY), len(first.panel.seeds)
    yield (
        f"{section.title}: {_name(board, first)} {'goes furthest, with' if rows[1:] else 'has'} "
        f"{means}{NBSP}% out of distribution ({seeds} seed{'s' * (seeds > 1)})."
    )
    if seeds == 1:
        yield "Nothing is claimed from one seed."
        if not several:
            return
        first = several[0]
        of_several = percent_of(first.panel, RANKED_BY)
        yield f"Of those with more seeds it is {_name(board, first)}, with {of_several}{NBSP}%."
    for sign, words in ((1, "above"), (-1, "below")):
        differs = [
            f"{board.label(name)} ({points(effect.welch)})"
            for name, effect in first.effects.items()
            if effect.welch and effect.is_significant and sign * effect.welch.difference > 0
        ]
        if differs:
            yield f"It is significantly {words} {_listed(differs)}."
    alike = [
        _name(board, row)
        for row in several
        if (test := row.from_best.welch) and abs(test.difference) <= test.half_width
    ]
    if alike:
        yield f"These seeds do not tell it apart from {_listed(alike)}."


def _name(board: Board, row: Row) -> str:
    return board.label(row.panel.name)


def _listed(names: Sequence[str]) -> str:
    """Join names as in "a, b and c"; of many the first, and the number of the others."""
    shown = list(names[:_MOST_NAMED])
    if rest := len(names) - len(shown):
        shown.append(f"{rest} more")
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
