"""`tape-arith curves`: what happened while runs were trained."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith curves --compare rope,tape --preset mini"


def command(
    compare: option.Compared,
    preset: option.Preset = None,
    runs: option.Runs = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf file (default: beside the runs).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The curves as JSON on stdout; drawn only with --out.")
    ] = False,
) -> None:
    """Draw loss, exact match and what a state does over the steps of training.

    `--compare all` draws every run of the preset that was trained like the others; what is left out
    is named.
    """
    from tape_arith.arith.compare.curves import figure_path, study
    from tape_arith.arith.figures.curves import draw, to_json
    from tape_arith.arith.runs.record import known_preset

    content = study(runs, compare, known_preset(preset))
    path = out or (None if as_json else figure_path(runs, content))
    if path is not None:
        draw(content, path)
    print(to_json(content) if as_json else path, end="" if as_json else "\n")
