"""`tape-arith report`: write everything about a comparison on one page."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith report --preset mini --out report.html"

_Out = Annotated[
    Path | None,
    typer.Option(
        help="An .html file (default: next to the runs, report.html or report@carry.html).",
        callback=option.written_file,
    ),
]


def command(
    pe: option.Encodings = option.ALL_ENCODINGS,
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    runs: option.ComparedRuns = option.OWN_RUNS,
    out: _Out = None,
    costs: option.Costs = False,
) -> None:
    """Write one HTML page: leaderboard, heatmaps, differences, curves, and the record of runs."""
    from tape_arith.arith.api.comparisons import report

    page = report(
        pe, runs=runs, preset=preset, split=split, max_digits=max_digits, out=out, costs=costs
    )
    print(page)
