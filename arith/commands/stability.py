"""`tape-arith stability`: what shifted positions change."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "tape-arith stability runs/mini/rope/seed-0 runs/mini/tape/seed-0 --plot stability.png"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, as `tape-arith list` shows them."),
    ],
    problems: Annotated[
        int, typer.Option(min=1, help="So many of the evaluation set, the first ones.")
    ] = 200,
    double: Annotated[
        bool, typer.Option("--double", help="In float64 too, where rounding is far below.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Keep the numbers as CSV.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw them: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Measure how attention changes when indices start elsewhere or [BOS] comes first."""
    from tape_arith.arith.figures.style import figure_format

    if plot is not None:
        figure_format(plot)
    from tape_arith.arith.files import write_text
    from tape_arith.arith.studies.stability import stability_study
    from tape_arith.arith.studies.stability_report import draw, to_csv, to_json, to_markdown

    study = stability_study(runs, problems, ("float32", "float64") if double else ("float32",))
    print((to_json if as_json else to_markdown)(study), end="")
    if out is not None:
        write_text(out, to_csv(study))
    if plot is not None:
        draw(study, plot)
