"""`tape-arith export`: write a run for other people's tools."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.names import parse_extrapolation

EXAMPLE = "tape-arith export runs/mini/rope/seed-0 --format transformers"


def command(
    run: option.RunPath,
    format: Annotated[
        str,
        typer.Option(
            help="transformers (a model that loads without tape-arith) or lm-eval (tasks)."
        ),
    ] = "transformers",
    with_: option.With = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder (default: in exports, after the run).")
    ] = None,
    per_cell: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With lm-eval: so many problems for each pair of lengths (default: the grid's).",
        ),
    ] = None,
    fresh: option.Fresh = False,
) -> None:
    """Write a trained run as transformers or lm-evaluation-harness takes it; prints the folder."""
    from tape_arith.arith.export.export_run import export_run
    from tape_arith.arith.runs.folder import existing_run

    if format != "lm-eval" and per_cell is not None:
        raise UsageError("--per-cell counts the problems of --format lm-eval")
    if format == "lm-eval" and with_:
        raise UsageError(
            "--with changes a model, and --format lm-eval writes problems: leave it out"
        )
    use_threads(None)
    extrapolation = parse_extrapolation(with_) if with_ else None
    folder = export_run(
        existing_run(run),
        format,
        extrapolation=extrapolation,
        out=out,
        per_cell=per_cell,
        fresh=fresh,
    )
    print(folder)
