"""`tape-arith study`: what goes on inside trained runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.commands.options import Split, Threads
from tape_arith.arith.errors import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tape_arith.arith.studies.inputs import StudiedRuns
    from tape_arith.arith.studies.study import Study

EXAMPLE = "tape-arith study errors runs/mini/rope/seed-0 runs/mini/fire/seed-0 --figure errors.png"
_FORMATS = ("markdown", "csv", "json")

app = typer.Typer(help="Measure what goes on inside trained runs.", epilog=f"Example: {EXAMPLE}")

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs, as `tape-arith list` shows them."),
]
Format = Annotated[str, typer.Option(help="markdown, csv or json, on stdout.")]
Drawing = Annotated[
    Path | None, typer.Option("--figure", metavar="FILE", help="Draw it: .png, .svg or .pdf.")
]


@app.command(epilog="Example: tape-arith study attention runs/mini/*/seed-0 --problem 123+45")
def attention(
    runs: Runs,
    problem: Annotated[
        str | None, typer.Option(help="Record the maps of this problem too, as in 123+45.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="The layer of the maps (default: the last).")
    ] = None,
    problems: Annotated[
        int, typer.Option(min=1, help="So many in distribution, and so many out of it.")
    ] = 200,
    split: Split = "evaluation",
    threads: Threads = None,
    format: Format = "markdown",
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw FILE-distance, FILE-places and FILE-maps."),
    ] = None,
) -> None:
    """Show where attention goes: by distance, and to digits of the place that is computed."""
    loaded = _load(runs, split, threads, format, figure)
    from tape_arith.arith.studies.attention import attention_study
    from tape_arith.arith.studies.attention_report import figures, to_markdown

    study = attention_study(loaded, problems, problem, layer)
    _show(study, to_markdown, figures, format, figure)


@app.command(epilog=f"Example: {EXAMPLE}")
def errors(
    runs: Runs,
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="So many of the evaluation set, the first ones (default: all)."),
    ] = None,
    split: Split = "evaluation",
    threads: Threads = None,
    format: Format = "markdown",
    figure: Drawing = None,
) -> None:
    """Count wrong answers by carry chain, by place and by kind of the first error."""
    loaded = _load(runs, split, threads, format, figure)
    from tape_arith.arith.studies.errors import error_study
    from tape_arith.arith.studies.errors_report import figures, to_markdown

    _show(error_study(loaded, problems), to_markdown, figures, format, figure)


@app.command(epilog="Example: tape-arith study stability runs/mini/*/seed-0 --figure stability.png")
def stability(
    runs: Runs,
    double: Annotated[
        bool, typer.Option("--double", help="In float64 too, where rounding is far below.")
    ] = False,
    problems: Annotated[
        int, typer.Option(min=1, help="So many of the evaluation set, the first ones.")
    ] = 200,
    split: Split = "evaluation",
    threads: Threads = None,
    format: Format = "markdown",
    figure: Drawing = None,
) -> None:
    """Measure how attention changes when indices start elsewhere or [BOS] comes first."""
    loaded = _load(runs, split, threads, format, figure)
    from tape_arith.arith.studies.stability import stability_study
    from tape_arith.arith.studies.stability_report import figures, to_markdown

    precisions = ("float32", "float64") if double else ("float32",)
    _show(stability_study(loaded, problems, precisions), to_markdown, figures, format, figure)


def _load(
    runs: list[Path], split: str, threads: int | None, format: str, figure: Path | None
) -> "StudiedRuns":
    """Load the runs after everything else of the command is checked."""
    from tape_arith.arith.data.bucket import known_split
    from tape_arith.arith.figures.style import figure_format

    if format not in _FORMATS:
        raise unknown("format", format, _FORMATS)
    if figure is not None:
        figure_format(figure)
    known_split(split)
    use_threads(threads)
    from tape_arith.arith.studies.inputs import comparable_runs

    return comparable_runs(runs, split)


def _show(
    study: "Study",
    to_markdown: "Callable[[Study], str]",
    figures: "Callable[[Study], Mapping[str, Figure]]",
    format: str,
    figure: Path | None,
) -> None:
    from tape_arith.arith.studies.study import draw
    from tape_arith.arith.terminal import say

    if figure is not None:
        for file in draw(study, figures, figure):
            say(f"drawn: {file}")
    text = to_markdown(study) if format == "markdown" else getattr(study, f"to_{format}")()
    print(text, end="")
