"""In which order encodings are shown, and which of them apart. No torch here."""

from collections.abc import Mapping

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.tables import Row, rows
from tape_arith.arith.scoring.grid import Grid
from tape_arith.models.names.locate import locate
from tape_arith.models.names.parse import parse

Panels = list[list[Grid]]
"""The grids of each encoding, one a seed."""

AGNOSTIC = "Task-agnostic"
STRUCTURED = "Task-structured"
UNKNOWN = "Of unknown kind"
NOT_RANKED = "Not ranked"
SECTIONS: Mapping[str, str] = {
    AGNOSTIC: "",
    STRUCTURED: "these know where digits stand, a prior that the others do not have",
    UNKNOWN: "not known here any more, so nobody can say what they know of the task",
    NOT_RANKED: "below 99 % in distribution (not converged), or not fully scored",
}
"""What is shown apart, in this order, and why."""


def kinds(name: str) -> tuple[str, ...] | None:
    """The kinds of the parts of a name, each once; None for a name that is not known any more.

    >>> kinds("abacus+rope+yarn"), kinds("gone:width=3")
    (('task-structured', 'rotary'), None)
    """
    try:
        parts = parse(name).encoding.parts
        declared = [locate("encoding", part.name).declaration() for part in parts]
        return tuple(dict.fromkeys(declaration.kind for declaration in declared))
    except UsageError:
        return None


def section(row: Row) -> str:
    """Which of SECTIONS an encoding belongs to."""
    if not row.ranked:
        return NOT_RANKED
    known = kinds(row.encoding)
    if known is None:
        return UNKNOWN
    return STRUCTURED if "task-structured" in known else AGNOSTIC


def sections(panels: Panels, seed: int | None = None) -> dict[str, list[Row]]:
    """The rows of a comparison in SECTIONS, none of them empty; within each the best out of
    distribution first, and by name what is not ranked. Errors: UsageError as `rows`."""
    found: dict[str, list[Row]] = {title: [] for title in SECTIONS}
    for row in rows(panels, seed):
        found[section(row)].append(row)
    return {title: members for title, members in found.items() if members}


def in_order(panels: Panels, seed: int | None = None) -> Panels:
    """`panels`, with all their seeds, in the order of `sections`, which may be that of one seed."""
    of = {panel[0].name: panel for panel in panels}
    return [of[row.encoding] for members in sections(panels, seed).values() for row in members]


def in_words(panels: Panels, seed: int | None = None) -> str:
    """The order of `in_order` as a sentence for a figure's note."""
    parts = []
    for title, members in sections(panels, seed).items():
        named = ", ".join(row.encoding for row in members)
        first = title == AGNOSTIC
        parts.append("by mean out of distribution" if first else f"{title.lower()} ({named})")
    return f"Order: {'; then '.join(parts)}."
