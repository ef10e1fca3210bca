"""`tape-arith heatmap`: grids side by side."""

from pathlib import Path
from typing import Annotated

import typer

from arith.commands.options import Compared, Preset, Runs
from models import catalog

EXAMPLE = "tape-arith heatmap --compare rope,rand-rope,nope,fire,tape"


def command(
    compare: Compared,
    preset: Preset = None,
    seed: Annotated[int | None, typer.Option(help="One seed only (default: their mean).")] = None,
    runs: Runs = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf file (default: beside the runs).")
    ] = None,
) -> None:
    """Draw exact match over operand lengths, a panel an encoding."""
    from arith.figures.heatmap import draw
    from arith.suite.compare import figure_path, panels
    from arith.suite.presets import known

    chosen = panels(runs, catalog.parse_list(compare), known(preset))
    path = out or figure_path(runs, chosen)
    draw(chosen, path, seed=seed)
    print(path)
