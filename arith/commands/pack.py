"""`tape-arith pack`: put the results of runs into one archive."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.terminal import say

EXAMPLE = "tape-arith pack runs --out our-lab.tgz"

_Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUNS|ARCHIVE", help="Folders of runs, and what `pack` has written."),
]
_Out = Annotated[
    Path, typer.Option("--out", "-o", help="The archive to write: a name that ends in .tgz.")
]
_Weights = Annotated[
    bool, typer.Option("--weights", help="Also the final weights: megabytes a run.")
]


def command(
    out: _Out,
    runs: _Runs = option.OWN_RUNS,
    preset: option.Preset = None,
    weights: _Weights = False,
) -> None:
    """Put records, metrics and grids of all runs into one archive, to send to others.

    It may be one of those that it is made of. Runs that are not scored are left out. Runs that
    `tape-arith validate` calls invalid are refused, and named, as are two different results of one
    run.
    """
    from tape_arith.arith.runs.find import every_run
    from tape_arith.arith.sharing.pack import pack
    from tape_arith.arith.sharing.validate import validate

    for root in runs:
        verdicts = validate(root, preset)
        if faults := [f"{each.run}: {each.faults[0]}" for each in verdicts if each.faults]:
            raise Failure(
                f"{len(faults)} of the runs in {root} are invalid, the first is {faults[0]}; "
                f"`tape-arith validate {root}` names all"
            )
    packed = [run for root in runs for run in every_run(root, preset)]
    scored = [run for run in packed if run.every_grid_file()]
    if not scored:
        raise UsageError(f"no run in {', '.join(map(str, runs))} is scored: there is no result")
    if unscored := [str(run.path) for run in packed if run not in scored]:
        say(f"note: left out, not scored: {', '.join(unscored)}")
    if files := sorted({name for run in scored if "/" in (name := run.record().encoding)}):
        say(f"note: the archive names places of files of yours: {', '.join(files)}")
    pack(scored, out, weights=weights)
    print(out)
