"""`tape-arith doctor`: check this machine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import EXIT_FAILED

if TYPE_CHECKING:
    from tape_arith.arith.doctor import Check

EXAMPLE = "tape-arith doctor --preset paper-40"
SCHEMA = 2


def command(
    preset: option.Preset = None,
    runs: option.Runs = Path("runs"),
    datasets: option.Datasets = Path("data"),
    as_json: option.AsJson = False,
) -> None:
    """Check Python, packages, processor, GPU, attention and disk; exit 1 if anything is broken.

    "slow" works and "missing" is not required; each has a fix. With a preset, also checks that its
    runs fit on the disk.
    """
    from tape_arith.arith.doctor import STATES, examine

    checks: list[Check] = []
    for check in examine(preset, runs, datasets):
        checks.append(check)
        if not as_json:
            print(check, flush=True)
    states = [check.state for check in checks]
    works = "broken" not in states
    if as_json:
        content = {"schema": SCHEMA, "works": works, "checks": list(map(vars, checks))}
        print(json.dumps(content, indent=1))
    else:
        print(", ".join(f"{states.count(state)} {state}" for state in STATES))
    if not works:
        raise typer.Exit(EXIT_FAILED)
