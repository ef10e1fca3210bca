"""`tape-arith pack`: put the results of runs into one archive."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.errors import Failure

EXAMPLE = "tape-arith pack runs --out our-lab.tgz"

_Runs = Annotated[Path, typer.Argument(metavar="RUNS", help="The folder of runs.")]
_Out = Annotated[
    Path, typer.Option("--out", "-o", help="The archive to write: a name that ends in .tgz.")
]
_Weights = Annotated[
    bool, typer.Option("--weights", help="Also the final weights: megabytes a run.")
]


def command(out: _Out, runs: _Runs = Path("runs"), weights: _Weights = False) -> None:
    """Put records, metrics and grids of all runs into one archive, to send to others.

    Runs that `tape-arith validate` calls invalid are refused, and named.
    """
    from tape_arith.arith.sharing.pack import pack
    from tape_arith.arith.sharing.validate import validate

    if faults := [f"{each.run}: {each.faults[0]}" for each in validate(runs) if each.faults]:
        raise Failure(
            f"{len(faults)} of the runs in {runs} are invalid, the first is {faults[0]}; "
            f"`tape-arith validate {runs}` names all"
        )
    pack(runs, out, weights=weights)
    print(out)
