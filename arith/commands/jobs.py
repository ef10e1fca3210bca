"""Show, stop and end the work of a command, in the same way for every command."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from tape_arith.arith.errors import UsageError
from tape_arith.arith.stopping import Stopped, Stopper, seconds
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.sweeps.estimate import Plan
    from tape_arith.arith.sweeps.run_jobs import Outcome


def print_plan(planned: "Plan", on: str | None, as_json: bool = False) -> None:
    """Print what the jobs of a plan cost, and how they would be sent."""
    from tape_arith.arith.sweeps.estimate import forecast_text

    costs, preview = planned.costs(on), planned.preview()
    text = "\n\n".join(filter(None, [forecast_text(costs), preview]))
    print(json.dumps({**costs, "batch": preview}, indent=1) if as_json else text)


def say_costs(planned: "Plan") -> None:
    """Say in one line what the jobs of a plan cost."""
    from tape_arith.arith.sweeps.estimate import forecast_total

    say(f"{planned.sweep.name}: {forecast_total(planned.costs())}")


@contextmanager
def stopping(time_limit: str | None = None) -> Iterator[Stopper]:
    """Let signals and the time limit stop the work in this block in good order, and exit then.

    Raises UsageError if the limit is not a duration.
    """
    try:
        stopper = Stopper(None if time_limit is None else seconds(time_limit))
    except ValueError:
        reason = f"--time-limit takes 90s, 25m, 1h30m or 1:30:00, not '{time_limit}'"
        raise UsageError(reason) from None
    with stopper.handling_signals():
        try:
            yield stopper
        except Stopped:
            leave(stopper)


def leave(stopper: Stopper) -> None:
    """Exit with the code of the signal or time limit, if one stopped the command."""
    if stopper.exit_code:
        print("stopped in good order: the same command continues from here", file=sys.stderr)
        raise typer.Exit(stopper.exit_code)


def conclude(outcome: "Outcome", stopper: Stopper) -> None:
    """Name the failed jobs, and exit with the code of an outcome, unless all is done."""
    for end in outcome.failed:
        log = f", log: {end.log}" if end.log else ""
        say(f"tape-arith: {end.reason} (job {end.job.id}{log})")
    if outcome.left:
        leave(stopper)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)
