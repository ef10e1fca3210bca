"""`tape-arith validate`: check results that others send."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import EXIT_FAILED
from tape_arith.arith.terminal import say

EXAMPLE = "tape-arith validate their-lab.tgz"

_Results = Annotated[
    Path,
    typer.Argument(metavar="RUNS|ARCHIVE", help="A folder of runs, or what `pack` has written."),
]


def command(results: _Results = Path("runs"), as_json: option.AsJson = False) -> None:
    """Check what results say against each other and against their problems, a line a run.

    Exit code 1 if a run is invalid. Whether its counts are true only scoring again can tell, and
    whether its losses are only training again.
    """
    from tape_arith.arith.sharing.validate import validate

    verdicts = validate(results)
    if as_json:
        print(json.dumps([asdict(each) for each in verdicts], indent=1))
    else:
        for each in verdicts:
            lines = [*each.faults] or [*each.checked, *(f"note: {note}" for note in each.notes)]
            print(f"{'INVALID' if each.faults else 'valid  '} {each.run}: {'; '.join(lines)}")
    if invalid := sum(bool(each.faults) for each in verdicts):
        say(f"{invalid} of {len(verdicts)} runs are invalid: who sent them has to send them again")
        raise typer.Exit(EXIT_FAILED)
