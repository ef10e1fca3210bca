"""`tape-arith sweep`: many runs from one file."""

import json
from pathlib import Path
from typing import Annotated

import typer

from arith.commands.conduct import conclude, stopper_for, use_threads
from arith.commands.options import (
    Attention,
    DryRun,
    NoCurves,
    Runs,
    SweepSlots,
    Threads,
    TimeLimit,
    complete_sweep,
)

EXAMPLE = "tape-arith sweep paper-20 --time-limit 25m"


def command(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP",
            help="A sweep that comes along (arith/suite/sweeps), or a .toml file of yours.",
            autocompletion=complete_sweep,
        ),
    ],
    out: Runs = Path("runs"),
    dry_run: DryRun = False,
    time_limit: TimeLimit = None,
    slots: SweepSlots = None,
    threads: Threads = None,
    attention: Attention = "auto",
    no_curves: NoCurves = False,
    as_json: Annotated[bool, typer.Option("--json", help="The jobs, as JSON.")] = False,
) -> None:
    """Train and score all runs of a sweep, in its order; what is done is never done again."""
    from arith.suite.sweep import load_sweep

    content = load_sweep(sweep)
    stopper = stopper_for(time_limit)
    use_threads(threads)
    from arith.suite import sweeping
    from arith.suite.plan import How

    with stopper.listening():
        made = sweeping.prepared(content, out, How(attention, not no_curves), slots)
        if dry_run:
            print(json.dumps(made.forecast, indent=1) if as_json else made.as_text())
            return
        outcome = made.run(stopper)
        tables = made.tables()
    if as_json:
        told = made.report(outcome) | {"tables": [str(table) for table in tables]}
        print(json.dumps(told, indent=1))
    else:
        print("\n".join(map(str, tables)) or f"nothing is scored yet: no table in {out}")
    conclude(outcome, stopper)
