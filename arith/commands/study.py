"""`tape-arith study`: measure attention, errors or stability of trained runs."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import option
from tape_arith.arith.commands.table_output import chosen_format
from tape_arith.arith.studies import DEFAULT_PROBLEMS
from tape_arith.arith.terminal import say

EXAMPLE = "tape-arith study errors runs/mini/rope/seed-0 runs/mini/fire/seed-0 --figure errors.png"

_Kind = Annotated[
    str,
    typer.Argument(
        help=f"{', '.join(DEFAULT_PROBLEMS)}.", autocompletion=lambda: list(DEFAULT_PROBLEMS)
    ),
]
_Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders of runs, as `tape-arith list` shows them."),
]
_Problem = Annotated[
    str | None, typer.Option(help="attention: also the maps of a problem, such as 123+45.")
]
_Layer = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="attention: the layer of the maps (default: the last)."),
]
_Double = Annotated[
    bool, typer.Option("--double", help="stability: in float64 too, with little rounding.")
]
_Format = Annotated[
    str | None, typer.Option(help="markdown, csv or json, on stdout (default: markdown).")
]
_Problems = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of problems of the evaluation set to measure."),
]


def command(
    kind: _Kind,
    runs: _Runs,
    problem: _Problem = None,
    layer: _Layer = None,
    double: _Double = False,
    problems: _Problems = None,
    split: option.Split = "evaluation",
    threads: option.Threads = None,
    format: _Format = None,
    as_csv: option.AsCsv = False,
    as_json: option.AsJson = False,
    figure: option.Figure = None,
) -> None:
    """Measure attention, errors or stability of trained runs.

    attention: weights by distance, and on the digits of the place that is computed. Half of the
    problems are in distribution. --figure x.png draws x-distance.png, x-places.png and, with
    --problem, x-maps.png.

    errors: wrong answers by carry chain, place and kind of the first error.

    stability: the change of attention if indices are shifted or [BOS] precedes the problem.
    """
    from tape_arith.arith.api.comparisons import study
    from tape_arith.arith.compare.terminal import print_markdown
    from tape_arith.arith.figures.style import figure_format, save

    form = chosen_format(format, ("markdown", "csv", "json"), as_csv=as_csv, as_json=as_json)
    if figure is not None:
        figure_format(figure)
    configure(threads)
    measured = study(
        kind, runs, problems=problems, split=split, problem=problem, layer=layer, double=double
    )
    if figure is not None:
        for name, drawn in measured.figures().items():
            file = figure.with_name(f"{figure.stem}{name}{figure.suffix}")
            save(drawn, file)
            say(f"drawn: {file}")
    if form is None:
        print_markdown(measured.to_markdown())
    else:
        print(getattr(measured, f"to_{form}")(), end="")
