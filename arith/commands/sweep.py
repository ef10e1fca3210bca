"""`tape-arith sweep`: train and score many runs from one file."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import completion, jobs, option
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.sweeps.run_sweep import PlannedSweep

EXAMPLE = "tape-arith sweep paper-20 --time-limit 25m"

_Sweep = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP",
        help="A bundled sweep (arith/sweeps/bundled), or a .toml file of yours.",
        autocompletion=completion.complete_sweep,
    ),
]
_Detach = Annotated[
    bool,
    option.machine(
        "--detach",
        help="With --engine slurm: send what can start, and leave; the same command continues.",
    ),
]


def command(
    sweep: _Sweep,
    runs: option.MadeRuns = Path("runs"),
    dry_run: option.DryRun = False,
    on: option.On = None,
    time_limit: option.TimeLimit = None,
    archive: option.Archive = None,
    slots: option.Slots = None,
    engine: option.Engine = "local",
    detach: _Detach = False,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    precision: option.InPrecision = "auto",
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    as_json: option.AsJson = False,
) -> None:
    """Train and score all runs of a sweep, in its order; what is finished is not repeated.

    At the end it prints the leaderboard (or the table, if settings vary) to stderr and the paths of
    the tables to stdout.
    """
    from tape_arith.arith.api.runs import plan_sweep

    configure(threads)
    engine += ":detach=true" * detach
    slots = option.estimated_slots(dry_run, on, slots)
    options = option.train_options(backend, compiled, no_curves, track, precision)
    with jobs.stopping(time_limit) as stopper:
        planned = plan_sweep(sweep, runs=runs, slots=slots, engine=engine, options=options)
        if dry_run:
            jobs.print_plan(planned, on, as_json)
            return
        if planned.remote:
            planned.remote.connect()
        jobs.say_costs(planned)
        outcome = planned.run(stopper, archive)
        try:
            (_print_json if as_json else _show)(planned, outcome.files)
        finally:  # names failed jobs whatever happens
            jobs.conclude(outcome, stopper)


def _print_json(planned: "PlannedSweep", tables: Sequence[Path]) -> None:
    from tape_arith.arith.sweeps import status

    content = status.content(status.status(planned.folder))
    print(json.dumps(content | {"tables": list(map(str, tables))}, indent=1))


def _show(planned: "PlannedSweep", tables: Sequence[Path]) -> None:
    """Print a sweep's leaderboard or first table, and the paths of its tables and runs."""
    from rich.console import Console

    from tape_arith.arith.compare import terminal

    root, preset = planned.requests[0].root, planned.requests[0].preset
    console = Console(stderr=True, highlight=False)
    if board := planned.leaderboard():
        command = f"tape-arith leaderboard --runs {shlex.quote(str(root))} --preset {preset}"
        terminal.print_board(board, advice=f"`{command} --wide` shows all.", console=console)
    elif tables:
        terminal.print_markdown(tables[0].read_text("utf-8"), console)
    print("\n".join(map(str, tables)) or "nothing is scored yet: the same command continues")
    if planned.sweep.varied:
        say(f"its runs are in {root.parent}, by settings: --runs {root} shows the first")
    elif root != planned.out:
        say(f"its runs are in {root}: --runs {root} shows them")
