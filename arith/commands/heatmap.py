"""`tape-arith heatmap`: grids side by side."""

from pathlib import Path
from typing import Annotated

import typer

from arith.commands.options import Compared, MaxDigits, Preset, Runs, Split

EXAMPLE = "tape-arith heatmap --compare rope,rand-rope,nope,fire,tape"


def command(
    compare: Compared,
    preset: Preset = None,
    split: Split = "evaluation",
    max_digits: MaxDigits = None,
    seed: Annotated[int | None, typer.Option(help="One seed only (default: their mean).")] = None,
    sort: Annotated[
        bool,
        typer.Option("--sort", help="Best out of distribution first, as `all` always stands."),
    ] = False,
    runs: Runs = Path("runs"),
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf file (default: beside the runs).")
    ] = None,
) -> None:
    """Draw exact match over operand lengths, a panel an encoding.

    `--compare all` draws every scored encoding: by mean out of distribution, then those that know
    where digits stand, then those that did not converge.
    """
    from arith.data.bucket import known_split
    from arith.figures.heatmap import draw
    from arith.suite.asked import Asked
    from arith.suite.compare import ALL, selection
    from arith.suite.order import in_words
    from arith.suite.presets import known
    from arith.suite.words import figure_path

    asked = Asked(known_split(split), max_digits)
    chosen = selection(runs, compare, known(preset), asked=asked, seed=seed, sort=sort)
    path = out or figure_path(runs, chosen, asked)
    order = in_words(chosen, seed) if sort or compare == ALL else ""
    draw(chosen, path, seed=seed, order=order)
    print(path)
