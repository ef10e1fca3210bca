"""`tape-arith status`: show the progress of runs and sweeps."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import completion, option
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith status mini-all --watch"
SECONDS_BETWEEN_LOOKS = 2.0
_Target = Annotated[
    str,
    typer.Argument(
        metavar="RUNS|SWEEP",
        help="A folder of runs, a sweep's name, or its folder.",
        autocompletion=completion.complete_sweep,
    ),
]
_Watch = Annotated[bool, typer.Option("--watch", help="Update every two seconds.")]


def command(
    target: _Target = "runs",
    runs: option.Runs = Path("runs"),
    watch: _Watch = False,
    as_json: option.AsJson = False,
) -> None:
    """Show jobs and runs with their state, step, loss, time left and log.

    With one slot, jobs run in the process of the sweep: they have no log and print to its stderr.
    With more slots, or on another engine, they print to RUNS/sweeps/NAME/logs.
    """
    from tape_arith.arith.sweeps import status

    if watch and as_json:
        raise UsageError("--watch is for people: leave out --json")
    place = status.find_folder(target, runs)
    rows = status.status(place)
    if as_json:
        print(json.dumps(status.content(rows), indent=1))
    elif not watch:
        print(status.as_text(rows))
    else:
        from rich.live import Live
        from rich.text import Text

        with Live(Text(status.as_text(rows)), auto_refresh=False) as live:
            while status.is_active(rows):
                time.sleep(SECONDS_BETWEEN_LOOKS)
                rows = status.status(place)
                live.update(Text(status.as_text(rows)), refresh=True)
