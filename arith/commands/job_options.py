"""Turn the options of several commands into values."""

import re
from pathlib import Path

from tape_arith.arith.documents import MOST_INTEGER
from tape_arith.arith.errors import UsageError
from tape_arith.arith.runs.config import Policy, Precision
from tape_arith.arith.runs.metrics import parse_trackers
from tape_arith.arith.runs.options import Compute, TrainOptions

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
