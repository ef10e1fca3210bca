"""The order of encodings in a comparison and the sections that stand apart; a grid in a line."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tape_arith.arith.errors import UsageError
from tape_arith.arith.figures.tables import Row, rows
from tape_arith.arith.runs.folder import slug
from tape_arith.arith.scoring.grid import DEFAULT_SET, EvaluationSet, Grid
from tape_arith.models.locate import locate
from tape_arith.models.names import parse

Panels = list[list[Grid]]
"""The grids of each encoding, one a seed."""

_AGNOSTIC, _STRUCTURED = "Task-agnostic", "Task-structured"
_UNKNOWN, _NOT_RANKED = "Of unknown kind", "Not ranked"
SECTIONS: Mapping[str, str] = {
    _AGNOSTIC: "",
    _STRUCTURED: "these know where digits stand, a prior that the others do not have",
    _UNKNOWN: "not known here any more, so nobody can say what they know of the task",
    _NOT_RANKED: "below 99 % in distribution (not converged), or not scored",
}
"""The sections in their order, and why each stands apart."""
MOST_NAMED = 8
"""The most encodings that are named in a figure's file."""


def kinds(name: str) -> tuple[str, ...] | None:
    """Return the kinds of the parts of a name, each once; None for a name that is unknown here.

    >>> kinds("abacus+rope+yarn"), kinds("gone:width=3")
    (('task-structured', 'rotary'), None)
    """
    try:
        parts = parse(name).encoding.parts
        declared = [locate("encoding", part.name).declaration() for part in parts]
        return tuple(dict.fromkeys(declaration.kind for declaration in declared))
    except UsageError:
        return None


def sections(panels: Panels, seed: int | None = None) -> dict[str, list[Row]]:
    """Return the rows of a comparison in those of SECTIONS that are not empty.

    Within each the best out of distribution comes first; what is not ranked is sorted by name.
    Raises UsageError if the grids must not be compared.
    """
    by_title: dict[str, list[Row]] = {title: [] for title in SECTIONS}
    for row in rows(panels, seed):
        by_title[_section(row)].append(row)
    return {title: members for title, members in by_title.items() if members}


def _section(row: Row) -> str:
    if not row.ranked:
        return _NOT_RANKED
    known = kinds(row.encoding)
    if known is None:
        return _UNKNOWN
    return _STRUCTURED if "task-structured" in known else _AGNOSTIC


def sort_panels(panels: Panels, seed: int | None = None) -> Panels:
    """Return `panels`, with all their seeds, in the order of `sections`, if asked of one seed."""
    by_name = {panel[0].name: panel for panel in panels}
    ordered = sections(panels, seed).values()
    return [by_name[row.encoding] for members in ordered for row in members]


def describe_order(panels: Panels, seed: int | None = None) -> str:
    """Return the order of `sort_panels` as a sentence for a figure's note."""
    parts = []
    for title, members in sections(panels, seed).items():
        named = ", ".join(row.encoding for row in members)
        first = title == _AGNOSTIC
        parts.append("by mean out of distribution" if first else f"{title.lower()} ({named})")
    return f"Order: {'; then '.join(parts)}."


def figure_path(
    root: Path, panels: Sequence[Sequence[Grid]], evaluation_set: EvaluationSet = DEFAULT_SET
) -> Path:
    """Return the path of a heatmap that has none: beside the runs of its preset."""
    names = join_names([panel[0].name for panel in panels])
    return root / panels[0][0].preset / f"{names}{evaluation_set.name}.png"


def join_names(names: Sequence[str]) -> str:
    """Return encodings as part of a file's name: MOST_NAMED of them, and how many more."""
    more = len(names) - MOST_NAMED
    return "-".join(map(slug, names[:MOST_NAMED])) + (f"-and-{more}-more" if more > 0 else "")
