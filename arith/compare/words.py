"""How a comparison is said: its grids in a line, its encodings in a file's name. No torch here."""

from collections.abc import Sequence
from pathlib import Path

from tape_arith.arith.runs.folder import slug
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.scoring.grid import Grid

MOST_NAMED = 8
"""So many encodings are named in a figure's file."""


def summary(grid: Grid, evaluation_set: EvaluationSet | None = None) -> str:
    """Return the means of a grid in one line, in percent of exact answers."""

    def percent(value: float | None) -> str:
        return "incomplete" if value is None else f"{value:.1%}"

    on = evaluation_set or EvaluationSet(grid.split)
    outside = grid.mean("out_of_distribution")
    longer = f"out of distribution {percent(outside.value)}"
    if not outside.cells:
        longer = f"nothing is out of distribution (trained and tested to {grid.max_digits} digits)"
    return (
        f"{grid.name} seed {grid.seed}{on}: {longer}, "
        f"in distribution {percent(grid.mean('in_distribution').value)}, "
        f"all {percent(grid.mean('all_cells').value)}"
    )


def figure_path(
    root: Path, panels: Sequence[Sequence[Grid]], evaluation_set: EvaluationSet = DEFAULT_SET
) -> Path:
    """Where a comparison is drawn unless said otherwise: beside the runs of its preset, under the
    names of its encodings, of the first and a count where they are many."""
    names = joined([panel[0].name for panel in panels])
    return root / panels[0][0].preset / f"{names}{evaluation_set.name}.png"


def joined(names: Sequence[str]) -> str:
    """Encodings in the name of a file: MOST_NAMED of them, and how many more."""
    more = len(names) - MOST_NAMED
    return "-".join(map(slug, names[:MOST_NAMED])) + (f"-and-{more}-more" if more > 0 else "")
