"""The table and the figure of a sweep whose encodings differ in options. No torch here."""

from pathlib import Path

from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import write_text
from tape_arith.arith.studies import ablations_figure as ablations
from tape_arith.arith.studies import ablations_table
from tape_arith.arith.sweeps.sweep import Sweep, folder_of
from tape_arith.arith.sweeps.tables import drop, panels

FIGURE = "ablations.png"


def draw_ablations(sweep: Sweep, out: Path, figure: Path | None = None) -> list[Path]:
    """Write both from what is scored so far; where they are. Errors: UsageError for a tuned sweep,
    and for another ending of `figure`."""
    if sweep.tuned is not None:
        raise UsageError(f"{sweep.name} tunes {sweep.tuned}: its runs are no ablations")
    found, place = panels(sweep, out), folder_of(sweep, out)
    tables = [f"ablations.{ending}" for ending in ablations_table.FORMATS]
    if not found:
        drop(place, [*tables, FIGURE], f"nothing of {sweep.name} as it is now")
        return []
    if figure is not None and figure.resolve() != (place / FIGURE).resolve():
        drop(place, [FIGURE], "what was scored before")
    families = ablations_table.families(found)
    written = []
    for ending, text in ablations_table.FORMATS.items():
        written.append(place / f"ablations.{ending}")
        write_text(written[-1], text(families))
    path = figure or place / FIGURE
    ablations.draw(families, found, path)
    return [*written, path]
