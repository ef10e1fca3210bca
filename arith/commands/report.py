"""`tape-arith report`: write everything about a comparison on one page."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith report --preset mini --out report.html"


def command(
    pe: option.Encodings = "all",
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    runs: option.Runs = Path("runs"),
    out: Annotated[
        Path | None,
        typer.Option(
            help="An .html file (default: next to the runs, report.html or report@carry.html)."
        ),
    ] = None,
    costs: option.Costs = False,
) -> None:
    """Write one HTML page: leaderboard, heatmaps, differences, curves, and the record of runs."""
    from tape_arith.arith.grids.evaluation_set import EvaluationSet

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write {out.name}: a report's name ends in .html")
    from tape_arith.arith.compare.report import collect
    from tape_arith.arith.compare.selection import Selection
    from tape_arith.arith.figures.report.page import write
    from tape_arith.arith.runs.find import preset_folder

    selection = Selection(runs, pe, preset, evaluation_set=EvaluationSet(split, max_digits))
    report = collect(selection, costs=costs)
    folder = preset_folder(runs, report.board.preset)
    path = out or folder / f"report{selection.evaluation_set.name}.html"
    write(report, path)
    print(path)
