"""`tape-arith export`: write a run as a model that loads without tape-arith."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith export runs/mini/rope/seed-0"

_Out = Annotated[
    Path | None, typer.Option(help="The folder (default: in exports, named after the run).")
]


def command(
    run: option.RunPath,
    with_: option.With = None,
    out: _Out = None,
    fresh: option.Fresh = False,
) -> None:
    """Write a trained run as a model for transformers; prints the folder."""
    from tape_arith.arith.api.run import Run

    print(Run(run).export(with_ or None, out=out, fresh=fresh))
