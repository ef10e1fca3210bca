"""`tape-arith list`: what there is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.options import Runs

EXAMPLE = "tape-arith list --json"


def command(
    runs: Runs = Path("runs"),
    costs: Annotated[
        bool, typer.Option("--costs", help="Parameters and extra FLOPs at the paper's size too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show encodings with their options, presets, tasks and runs."""
    from tape_arith.arith.compare.catalogue import catalogue, to_text

    content = catalogue(runs, costs=costs)
    print(json.dumps(content, indent=1) if as_json else to_text(content))
