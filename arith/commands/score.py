"""`tape-arith score`: a run's grid."""

from pathlib import Path
from typing import Annotated

import typer

from arith.commands.conduct import leave, show, stopper_for, use_threads
from arith.commands.options import Attention, Fresh, Threads, TimeLimit
from models import catalog

EXAMPLE = "tape-arith score runs/mini/rope/seed-0 --with yarn"


def command(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `tape-arith list` shows it.")],
    with_: Annotated[
        str | None, typer.Option("--with", help="An extrapolation at test time: yarn[:ramp=paper].")
    ] = None,
    max_digits: Annotated[
        int | None, typer.Option(min=1, help="Operands up to so many digits.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The grid on stdout.")] = False,
    time_limit: TimeLimit = None,
    threads: Threads = None,
    attention: Attention = "auto",
    fresh: Fresh = False,
) -> None:
    """Score a run on the grid of operand lengths, by one teacher-forced pass."""
    extrapolation = catalog.parse_extrapolation(with_) if with_ else None
    stopper = stopper_for(time_limit)
    use_threads(threads)
    from arith.suite import runs as suite
    from arith.suite.folders import existing_run

    with stopper.listening():
        grid = suite.score_run(
            existing_run(run),
            extrapolation,
            max_digits=max_digits,
            attention=attention,
            fresh=fresh,
            should_stop=stopper,
        )
    show(grid, as_json)
    if not grid.complete:
        leave(stopper)
