"""`tape-arith ablate`: an encoding without one of its parts."""

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
    complete_sweep,
)
from tape_arith.models.backends import AttentionChoice

EXAMPLE = "tape-arith ablate tape-ablations --dry-run"


def command(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SET",
            help="A sweep whose encodings differ in options, by name or as a .toml file.",
            autocompletion=complete_sweep,
        ),
    ] = "tape-ablations",
    out: Runs = Path("runs"),
    figure: Annotated[
        Path | None,
        typer.Option(help="A .png, .svg or .pdf file (default: beside the sweep's tables)."),
    ] = None,
    dry_run: DryRun = False,
    time_limit: TimeLimit = None,
    slots: SweepSlots = None,
    engine: Engine = "local",
    threads: Threads = None,
    attention: Attention = "auto",
    compiled: Compiled = None,
    no_curves: NoCurves = False,
) -> None:
    """Train and score a set of ablations, then draw each beside the encoding it is taken from."""
    from tape_arith.arith.sweeps.engines.engine import remote_engine
    from tape_arith.arith.sweeps.sweep import load_sweep, sweep_folder

    content = load_sweep(sweep)
    stopper = stopper_for(time_limit)
    remote = remote_engine(engine, slots, sweep_folder(content, out))
    if figure is not None:
        from tape_arith.arith.figures.style import figure_format

        figure_format(figure)
    use_threads(threads)
    from tape_arith.arith.sweeps.estimate import forecast_text
    from tape_arith.arith.sweeps.jobs import JobOptions
    from tape_arith.arith.sweeps.run_sweep import plan_sweep
    from tape_arith.arith.sweeps.tables import draw_ablations

    with stopper.handling_signals():
        options = JobOptions(AttentionChoice(attention, compiled), not no_curves)
        planned = plan_sweep(content, sweep, out, options, slots, here=remote is None)
        if dry_run:
            print(forecast_text(planned.forecast))
            return
        outcome = planned.run(stopper, remote)
        written = draw_ablations(content, out, figure)
    print("\n".join(map(str, written)) or f"nothing is scored yet: no figure in {out}")
    conclude(outcome, stopper)
