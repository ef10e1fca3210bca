"""`tape-arith export`: write a run as a model that loads without tape-arith."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith export runs/mini/rope/seed-0"

_Out = Annotated[
    Path | None, typer.Option(help="The folder (default: in exports, named after the run).")
]
_DatasetId = Annotated[
    str | None,
    typer.Option(
        "--dataset-id",
        metavar="OWNER/NAME",
        help="A benchmark among the Hub's data sets: also write the means as its results, in "
        ".eval_results (default: the model card alone has them).",
    ),
]


def command(
    run: option.RunPath,
    with_: option.With = None,
    dataset_id: _DatasetId = None,
    out: _Out = None,
    fresh: option.Fresh = False,
) -> None:
    """Write a trained run as a model for transformers; prints the folder."""
    from tape_arith.arith.api.run import Run

    print(Run(run).export(with_ or None, dataset_id=dataset_id, out=out, fresh=fresh))
