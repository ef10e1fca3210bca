"""`tape-arith sweep`: many runs from one file."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.job_options import conclude, stopper_for, use_threads
from tape_arith.arith.commands.options import (
    Attention,
    Compiled,
    DryRun,
    Engine,
    NoCurves,
    Runs,
    SweepSlots,
    Threads,
    TimeLimit,
    Track,
    complete_sweep,
)
from tape_arith.models.backends import AttentionChoice

EXAMPLE = "tape-arith sweep paper-20 --time-limit 25m"


def command(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP",
            help="A sweep that comes along (arith/sweeps/bundled), or a .toml file of yours.",
            autocompletion=complete_sweep,
        ),
    ],
    out: Runs = Path("runs"),
    dry_run: DryRun = False,
    time_limit: TimeLimit = None,
    slots: SweepSlots = None,
    engine: Engine = "local",
    threads: Threads = None,
    attention: Attention = "auto",
    compiled: Compiled = None,
    no_curves: NoCurves = False,
    track: Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="The jobs, as JSON.")] = False,
) -> None:
    """Train and score all runs of a sweep, in its order; what is done is never done again."""
    from tape_arith.arith.sweeps.engines.engine import remote_engine
    from tape_arith.arith.sweeps.sweep import load_sweep, sweep_folder

    content = load_sweep(sweep)
    stopper = stopper_for(time_limit)
    remote = remote_engine(engine, slots, sweep_folder(content, out))
    use_threads(threads)
    from tape_arith.arith.runs.metrics import parse_trackers
    from tape_arith.arith.sweeps.estimate import forecast_text
    from tape_arith.arith.sweeps.jobs import JobOptions
    from tape_arith.arith.sweeps.run_sweep import plan_sweep
    from tape_arith.arith.sweeps.tables import write_tables
    from tape_arith.arith.terminal import say

    with stopper.handling_signals():
        options = JobOptions(
            AttentionChoice(attention, compiled), not no_curves, trackers=parse_trackers(track)
        )
        planned = plan_sweep(content, sweep, out, options, slots, here=remote is None)
        if dry_run:
            forecast = planned.forecast
            print(json.dumps(forecast, indent=1) if as_json else forecast_text(forecast))
            return
        outcome = planned.run(stopper, remote)
        tables = write_tables(content, out)
    if as_json:
        report = planned.report(outcome) | {"tables": [str(table) for table in tables]}
        print(json.dumps(report, indent=1))
    else:
        print("\n".join(map(str, tables)) or f"nothing is scored yet: no table in {out}")
        if (root := content.root(out)) != out:
            say(f"its runs are in {root}: --runs {root} shows them")
    conclude(outcome, stopper)
