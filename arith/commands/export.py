"""`tape-arith export`: write a run as a model that loads without tape-arith."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.registry.names import parse_extrapolation

EXAMPLE = "tape-arith export runs/mini/rope/seed-0"


def command(
    run: option.RunPath,
    with_: option.With = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder (default: in exports, named after the run).")
    ] = None,
    fresh: option.Fresh = False,
) -> None:
    """Write a trained run as a model for transformers; prints the folder."""
    from tape_arith.arith.export.export_run import export_run
    from tape_arith.arith.runs.find import existing_run

    use_threads(None)
    extrapolation = parse_extrapolation(with_) if with_ else None
    print(export_run(existing_run(run), extrapolation=extrapolation, out=out, fresh=fresh))
