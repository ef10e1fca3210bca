"""Parse, stop and exit alike in every command."""

import json
import sys
from typing import TYPE_CHECKING

import typer

from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import MOST_INTEGER, with_checksum
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.runs.record import RunRecord
    from tape_arith.arith.scoring.grid import EvaluationSet, Grid
    from tape_arith.arith.sweeps.jobs import Outcome
    from tape_arith.arith.terminal import Stopper
    from tape_arith.arith.training.config import Config

_EFFICIENCY = 0.5
"""The share of the rate of plain products that training reaches at best."""


def chosen_config(
    preset: str | None,
    settings: list[str] | None,
    task: str | None,
    leading_bos: int = 0,
    like: "RunRecord | None" = None,
) -> "tuple[str, Config]":
    """Return the preset's name and its settings with those of the command line.

    Without a preset it is that of the run `like`, or the one that suits this machine.
    """
    from tape_arith.arith.runs.record import load_preset, parse_settings

    chosen = parse_settings(settings or []) | ({"task": task} if task else {})
    chosen |= {"leading_bos": str(leading_bos)} if leading_bos else {}
    if preset is None and like is not None:
        return like.preset, like.config.with_settings(chosen)
    if preset is None:
        preset, reason = default_preset()
        say(reason)
    return preset, load_preset(preset).with_settings(chosen)


def default_preset() -> tuple[str, str]:
    """Choose the preset that suits this machine; return it and a line that says why.

    The time of training on a CPU is estimated from the rate of plain matrix products.
    """
    from torch import ones
    from torch.utils.benchmark import Timer

    from tape_arith.arith.runs.build import training_flops_a_token, training_tokens
    from tape_arith.arith.runs.record import load_preset
    from tape_arith.models.hardware import detect
    from tape_arith.models.names import parse

    hardware, size = detect(), 1024
    if hardware.device == "cuda":
        return "paper-40", f"preset paper-40: there is a GPU ({hardware.name})"
    timer = Timer("a @ a", globals={"a": ones(size, size, dtype=hardware.dtype)})
    rate = 2.0 * size**3 / timer.blocked_autorange(min_run_time=0.2).median * hardware.threads
    config = load_preset("paper-40")
    flops = training_flops_a_token(parse("nope"), config) * training_tokens(config)
    days = flops / (_EFFICIENCY * rate) / 86_400
    return "mini", (
        f"preset mini: there is no GPU, and paper-40 would take at least {days:.1f} days of "
        "training here (--preset chooses)"
    )


def show(grid: "Grid", as_json: bool, evaluation_set: "EvaluationSet | None" = None) -> None:
    """Print a grid, scored on `evaluation_set`: its means in a line, or all of it."""

    print(
        json.dumps(with_checksum(grid.content(), "grid"))
        if as_json
        else grid.summary(evaluation_set)
    )


def whole_numbers(option: str, text: str) -> list[int]:
    """Parse "0,1,2" as numbers, each once. Raises UsageError, naming `option`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{option} takes whole numbers with commas, as in 0,1,2, not '{text}'")
    numbers = list(dict.fromkeys(map(int, parts)))
    if max(numbers) > MOST_INTEGER:
        raise UsageError(f"{option} takes numbers up to {MOST_INTEGER}, not {max(numbers)}")
    return numbers


def stopper_for(time_limit: str | None) -> "Stopper":
    """Return what stops a command in good order when its time is up. Raises UsageError."""
    from tape_arith.arith.terminal import Stopper, seconds

    try:
        return Stopper(None if time_limit is None else seconds(time_limit))
    except ValueError:
        raise UsageError(f"--time-limit takes 90s, 25m or 3h, not '{time_limit}'") from None


def use_threads(threads: int | None) -> None:
    """Set the CPU threads that --threads asks for; without it torch's own number stays."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def leave(stopper: "Stopper") -> None:
    """Exit with the code of the signal or time limit that stopped us, if any did."""
    if stopper.exit_code:
        print("stopped in good order: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(stopper.exit_code)


def conclude(outcome: "Outcome", stopper: "Stopper") -> None:
    """Name the jobs that failed, a line each, and exit with the code of the outcome."""
    for ended in outcome.failed:
        log = f", log: {ended.log}" if ended.log else ""
        say(f"tape-arith: {ended.reason} (job {ended.job.id}{log})")
    if outcome.left:
        leave(stopper)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)
