"""`tape-arith table`: the means of scored runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.options import MaxDigits, Preset, Runs, Split
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith table --compare rope,fire,tape --format csv"


def command(
    compare: Annotated[
        str, typer.Option(metavar="NAMES", help="Encodings (default: all that are scored).")
    ] = "all",
    preset: Preset = None,
    split: Split = "evaluation",
    max_digits: MaxDigits = None,
    runs: Runs = Path("runs"),
    format: Annotated[str, typer.Option(help="markdown, csv, latex or json")] = "markdown",
) -> None:
    """Print the means of scored runs with their intervals."""
    from tape_arith.arith.compare.panels import selection
    from tape_arith.arith.data.bucket import known_split
    from tape_arith.arith.figures.captions import SPLITS
    from tape_arith.arith.figures.tables import FORMATS, rows
    from tape_arith.arith.runs.record import known_preset
    from tape_arith.arith.scoring.evaluation_set import EvaluationSet

    if format not in FORMATS:
        raise UsageError(f"unknown format '{format}'. Known: {', '.join(FORMATS)}")
    evaluation_set = EvaluationSet(known_split(split), max_digits)
    chosen = selection(runs, compare, known_preset(preset), evaluation_set=evaluation_set)
    reach = f"tested to {max_digits} digits" if max_digits else ""
    if problems := "; ".join(filter(None, (SPLITS[split], reach))):
        # Programs know what they asked for; a table for people says it itself.
        print(f"{problems}\n", file=sys.stdout if format == "markdown" else sys.stderr)
    print(FORMATS[format](rows(chosen)), end="")
