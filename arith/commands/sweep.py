"""`tape-arith sweep`: train and score many runs from one file."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import completion, jobs, option
from tape_arith.arith.terminal import say

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
    from rich.console import Console

    from tape_arith.arith.api.runs import plan_sweep
    from tape_arith.arith.compare import terminal
    from tape_arith.arith.sweeps import status

    configure(threads)
    engine += ":detach=true" * detach
    slots = jobs.estimated_slots(dry_run, on, slots)
    options = jobs.train_options(backend, compiled, no_curves, track, precision)
    with jobs.stopping(time_limit) as stopper:
        planned = plan_sweep(sweep, runs=runs, slots=slots, engine=engine, options=options)
        if dry_run:
            jobs.print_plan(planned, on, as_json)
            return
        if planned.remote:
            planned.remote.connect()
        jobs.say_costs(planned)
        outcome = planned.run(stopper, archive)
        tables = list(map(str, outcome.files))
        root, preset = planned.requests[0].root, planned.requests[0].preset
        console = Console(stderr=True, highlight=False)
        try:
            if as_json:
                content = status.content(status.status(planned.folder))
                print(json.dumps(content | {"tables": tables}, indent=1))
                return
            if board := planned.leaderboard():
                line = f"tape-arith leaderboard --runs {shlex.quote(str(root))} --preset {preset}"
                terminal.print_board(board, advice=f"`{line} --wide` shows all.", console=console)
            elif tables:
                terminal.print_markdown(outcome.files[0].read_text("utf-8"), console)
            print("\n".join(tables) or "nothing is scored yet: the same command continues")
            if planned.sweep.varied:
                say(f"its runs are in {root.parent}, by settings: --runs {root} shows the first")
            elif root != planned.out:
                say(f"its runs are in {root}: --runs {root} shows them")
        finally:  # names failed jobs whatever happens
            jobs.conclude(outcome, stopper)
