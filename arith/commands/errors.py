"""`tape-arith errors`: how wrong answers go wrong."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.commands.options import Attention, Split, Threads
from tape_arith.models.backends import AttentionChoice

EXAMPLE = "tape-arith errors runs/mini/rope/seed-0 runs/mini/fire/seed-0 --out errors.png"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, as `tape-arith list` shows them."),
    ],
    split: Split = "evaluation",
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="So many of the evaluation set, the first ones (default: all)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The counts as JSON on stdout.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FIGURE", help="Draw them: .png, .svg or .pdf.")
    ] = None,
    threads: Threads = None,
    attention: Attention = "auto",
) -> None:
    """Count wrong answers by carry chain, by place and by kind of the first error."""
    from tape_arith.arith.data.bucket import known_split
    from tape_arith.arith.figures.style import figure_format

    known_split(split)
    if out is not None:
        figure_format(out)
    use_threads(threads)
    from tape_arith.arith.studies.errors import error_study
    from tape_arith.arith.studies.errors_data import to_json, to_markdown
    from tape_arith.arith.studies.errors_figure import draw

    study = error_study(runs, split, problems, AttentionChoice(attention, compiled=False))
    print((to_json if as_json else to_markdown)(study), end="")
    if out is not None:
        draw(study, out)
