"""`tape-arith table`: the means of scored runs."""

from pathlib import Path
from typing import Annotated

import typer

from arith.commands.options import Preset, Runs
from arith.errors import UsageError
from models import catalog

EXAMPLE = "tape-arith table --compare rope,fire,tape --format csv"


def command(
    compare: Annotated[
        str, typer.Option(metavar="NAMES", help="Encodings (default: all that are scored).")
    ] = "",
    preset: Preset = None,
    runs: Runs = Path("runs"),
    format: Annotated[str, typer.Option(help="markdown, csv or json")] = "markdown",
) -> None:
    """Print the means of scored runs with their intervals."""
    from arith.figures.table import FORMATS, rows
    from arith.suite.compare import all_panels, panels
    from arith.suite.presets import known

    if format not in FORMATS:
        raise UsageError(f"unknown format '{format}'. Known: {', '.join(FORMATS)}")
    names = catalog.parse_list(compare)
    preset = known(preset)
    chosen = panels(runs, names, preset) if names else all_panels(runs, preset)
    print(FORMATS[format](rows(chosen)), end="")
