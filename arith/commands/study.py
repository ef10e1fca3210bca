"""`tape-arith study`: what goes on inside trained runs."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.errors import unknown
from tape_arith.arith.terminal import say

EXAMPLE = "tape-arith study errors runs/mini/rope/seed-0 runs/mini/fire/seed-0 --figure errors.png"
_FORMATS = ("markdown", "csv", "json")

app = typer.Typer(help="Measure what goes on inside trained runs.", epilog=f"Example: {EXAMPLE}")

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs, as `tape-arith list` shows them."),
]
Format = Annotated[str, typer.Option(help="markdown, csv or json, on stdout.")]


@app.command(epilog="Example: tape-arith study attention runs/mini/*/seed-0 --problem 123+45")
def attention(
    runs: Runs,
    problem: Annotated[
        str | None, typer.Option(help="Record the maps of this problem too, as in 123+45.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="The layer of the maps (default: the last).")
    ] = None,
    problems: option.Problems = 200,
    split: option.Split = "evaluation",
    threads: option.Threads = None,
    format: Format = "markdown",
    figure: option.Figure = None,
) -> None:
    """Show where attention goes: by distance, and to digits of the place that is computed.

    As many --problems are in distribution as out of it. --figure x.png draws x-distance.png,
    x-places.png and, with --problem, x-maps.png.
    """
    options = {"written": problem, "layer": layer}
    _study("attention", runs, problems, split, threads, format, figure, **options)


@app.command(epilog=f"Example: {EXAMPLE}")
def errors(
    runs: Runs,
    problems: option.Problems = None,
    split: option.Split = "evaluation",
    threads: option.Threads = None,
    format: Format = "markdown",
    figure: option.Figure = None,
) -> None:
    """Count wrong answers by carry chain, by place and by kind of the first error."""
    _study("errors", runs, problems, split, threads, format, figure)


@app.command(epilog="Example: tape-arith study stability runs/mini/*/seed-0 --figure stability.png")
def stability(
    runs: Runs,
    double: Annotated[
        bool, typer.Option("--double", help="In float64 too, where rounding is far below.")
    ] = False,
    problems: option.Problems = 200,
    split: option.Split = "evaluation",
    threads: option.Threads = None,
    format: Format = "markdown",
    figure: option.Figure = None,
) -> None:
    """Measure how attention changes when indices start elsewhere or [BOS] comes first."""
    _study("stability", runs, problems, split, threads, format, figure, double=double)


def _study(
    kind: str,
    paths: list[Path],
    problems: int | None,
    split: str,
    threads: int | None,
    format: str,
    figure: Path | None,
    **options: Any,
) -> None:
    """Check the options, measure, draw and print by the module `studies.KIND`."""
    from tape_arith.arith.figures.style import figure_format

    if format not in _FORMATS:
        raise unknown("format", format, _FORMATS)
    if figure is not None:
        figure_format(figure)
    use_threads(threads)
    from tape_arith.arith.studies.inputs import comparable_runs
    from tape_arith.arith.studies.study import draw

    module = import_module(f"tape_arith.arith.studies.{kind}")
    study = module.measure(comparable_runs(paths, split), problems, **options)
    if figure is not None:
        for file in draw(lambda: module.figures(study), figure):
            say(f"drawn: {file}")
    texts = {"markdown": module.to_markdown, "csv": type(study).to_csv, "json": type(study).to_json}
    print(texts[format](study), end="")
