"""`tape-arith sweep`: train and score many runs from one file."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import (
    conclude,
    stopper_for,
    train_options,
    use_threads,
)
from tape_arith.arith.runs.options import AUTO

if TYPE_CHECKING:
    from tape_arith.arith.runs.request import Request
    from tape_arith.arith.sweeps.sweep import Sweep

EXAMPLE = "tape-arith sweep paper-20 --time-limit 25m"


def command(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP",
            help="A bundled sweep (arith/sweeps/bundled), or a .toml file of yours.",
            autocompletion=option.complete_sweep,
        ),
    ],
    runs: option.MadeRuns = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show jobs, cost and estimated time; write nothing.")
    ] = False,
    time_limit: option.TimeLimit = None,
    slots: option.Slots = None,
    engine: option.Engine = "local",
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    as_json: option.AsJson = False,
) -> None:
    """Train and score all runs of a sweep, in its order; nothing finished is done again.

    At the end it prints its leaderboard (its table if settings vary) to stderr and the paths of its
    tables to stdout.
    """
    from tape_arith.arith.sweeps.engines import remote_engine
    from tape_arith.arith.sweeps.sweep import load_sweep, sweep_folder

    content = load_sweep(sweep)
    stopper = stopper_for(time_limit)
    folder = sweep_folder(content.name, runs)
    remote = remote_engine(engine, slots, folder)
    use_threads(threads)
    from tape_arith.arith.sweeps import status
    from tape_arith.arith.sweeps.engines.local import local_engine
    from tape_arith.arith.sweeps.estimate import forecast, forecast_text, forecast_total
    from tape_arith.arith.sweeps.jobs import plan
    from tape_arith.arith.sweeps.run_sweep import check_requests, run_sweep, write_tables
    from tape_arith.arith.sweeps.slots import Slots, choose_slots
    from tape_arith.arith.terminal import say

    options = train_options(backend, compiled, no_curves, track)
    with stopper.handling_signals():
        requests = content.requests(runs)
        check_requests(requests, options.compute if remote is None else AUTO)
        jobs = plan(requests, options, runs, content.splits)
        shares = choose_slots(jobs, slots) if remote is None else Slots(slots or 1, threads=1)
        costs = forecast(content, jobs, shares, here=remote is None)
        if dry_run:
            print(json.dumps(costs, indent=1) if as_json else forecast_text(costs))
            return
        say(f"{content.name}: {forecast_total(costs)}")
        job_engine = remote or local_engine(shares, folder, stopper)
        outcome = run_sweep(content, runs, jobs, job_engine, stopper)
        try:
            tables = write_tables(content, runs)
            if as_json:
                rows = status.content(status.status(folder)) | {"tables": list(map(str, tables))}
                print(json.dumps(rows, indent=1))
            else:
                _show(content, runs, requests[0], tables)
        finally:  # names failed jobs even if the tables cannot be written
            conclude(outcome, stopper)


def _show(content: "Sweep", runs: Path, first: "Request", tables: Sequence[Path]) -> None:
    """Print a sweep's leaderboard or first table, and the paths of its tables and runs."""
    from rich.console import Console

    from tape_arith.arith.compare.terminal import print_board, print_markdown
    from tape_arith.arith.sweeps.run_sweep import leaderboard
    from tape_arith.arith.terminal import say

    root, console = first.root, Console(stderr=True, highlight=False)
    if board := leaderboard(content, runs):
        folder = shlex.quote(str(root))
        command = f"tape-arith leaderboard --runs {folder} --preset {first.preset} --wide"
        print_board(board, advice=f"`{command}` shows all.", console=console)
    elif tables:
        print_markdown(tables[0].read_text("utf-8"), console)
    print("\n".join(map(str, tables)) or "nothing is scored yet: the same command continues")
    if root != runs:
        if content.varied:
            say(f"its runs are in {root.parent}, by settings: --runs {root} shows the first")
        else:
            say(f"its runs are in {root}: --runs {root} shows them")
