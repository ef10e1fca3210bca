"""Begin, show, stop and end the work of a command, in the same way for every command."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tape_arith.arith.documents import MOST_INTEGER
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.config import Policy, Precision
from tape_arith.arith.runs.metrics import parse_trackers
from tape_arith.arith.runs.options import Compute, TrainOptions
from tape_arith.arith.stopping import Stopped, Stopper, seconds
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.sweeps.estimate import Plan
    from tape_arith.arith.sweeps.run_jobs import Outcome

_MOST_NUMBERS = 10_000


def whole_numbers(option: str, text: str) -> list[int]:
    """Parse "0,1,2" or "0-2" as numbers without duplicates. Raises UsageError, naming `option`."""
    numbers: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part, re.ASCII)
        if ends is None:
            raise UsageError(
                f"{option} takes whole numbers with commas, as in 0,1,2 or 0-2, not '{text}'"
            )
        # Python refuses to read a number of thousands of digits.
        first, last = (int(end[:100]) for end in (ends[1], ends[2] or ends[1]))
        if max(first, last) > MOST_INTEGER or last - first >= _MOST_NUMBERS:
            raise UsageError(f"{option} takes numbers up to {MOST_INTEGER}, not {text[:100]}")
        if last < first:
            raise UsageError(f"{option}: {part.strip()} counts down: write {last}-{first}")
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))


def train_options(
    backend: str,
    compiled: bool | None,
    no_curves: bool,
    track: str | None,
    precision: Precision,
    data: Path | None = None,
    on_nonfinite: Policy | None = None,
) -> TrainOptions:
    """Build TrainOptions from the values of a command. Raises UsageError for a bad `track`."""
    compute = Compute(backend, compiled, precision)
    return TrainOptions(data, compute, not no_curves, parse_trackers(track), on_nonfinite)


def estimated_slots(dry_run: bool, on: str | None, slots: int | None) -> int | None:
    """Return the slots of a plan: one GPU, unless more are named. Raises UsageError for `on`."""
    if on and not dry_run:
        raise UsageError("--on only estimates: add --dry-run, or leave out --on to run here")
    return slots or 1 if on else slots


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
