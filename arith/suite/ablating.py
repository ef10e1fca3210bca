"""The table and the figure of a sweep whose encodings differ in options. No torch here."""

from pathlib import Path

from arith.errors import UsageError
from arith.figures import ablations, ablations_table
from arith.files import write_text
from arith.suite.outcome_tables import panels
from arith.suite.sweep import Sweep, folder_of


def draw_ablations(sweep: Sweep, out: Path, figure: Path | None = None) -> list[Path]:
    """Write both from what is scored so far; where they are. Errors: UsageError for a tuned sweep,
    and for another ending of `figure`."""
    if sweep.tuned is not None:
        raise UsageError(f"{sweep.name} tunes {sweep.tuned}: its runs are no ablations")
    found = panels(sweep, out)
    if not found:
        return []
    families = ablations_table.families(found)
    place = folder_of(sweep, out)
    written = []
    for ending, text in ablations_table.FORMATS.items():
        written.append(place / f"ablations.{ending}")
        write_text(written[-1], text(families))
    path = figure or place / "ablations.png"
    ablations.draw(families, found, path)
    return [*written, path]
