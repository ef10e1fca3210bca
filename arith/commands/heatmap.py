"""`tape-arith heatmap`: draw grids side by side."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith heatmap --pe rope,rand-rope,nope,fire,tape"


def command(
    pe: option.Encodings,
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    seed: option.Seed = None,
    sort: Annotated[
        bool,
        typer.Option("--sort", help="Best out of distribution first, as `all` always stands."),
    ] = False,
    runs: option.Runs = Path("runs"),
    figure: option.MadeFigure = None,
    label: option.Labels = None,
    width: option.Width = None,
    columns: option.Columns = None,
    no_caption: option.NoCaption = False,
) -> None:
    """Draw exact match over operand lengths, a panel an encoding: the mean, or that of one --seed.

    Without --figure the file is beside the runs.

    `--pe all` draws every scored encoding: by mean out of distribution, then those that know
    where digits stand, then those that did not converge.
    """
    from tape_arith.arith.compare.leaderboard import describe_order, sort_panels
    from tape_arith.arith.compare.panels import ALL, figure_path, select_panels
    from tape_arith.arith.errors import UsageError
    from tape_arith.arith.figures.heatmap import compose
    from tape_arith.arith.figures.labels import display_names, read_labels
    from tape_arith.arith.figures.style import save
    from tape_arith.arith.scoring.grid import EvaluationSet

    evaluation_set = EvaluationSet(split, max_digits)
    panels, _ = select_panels(runs, pe, preset, evaluation_set)
    order = ""
    if pe == ALL and seed is not None:
        panels = [panel for panel in panels if any(grid.seed == seed for grid in panel)]
        if not panels:
            raise UsageError(f"no scored run of seed {seed} in {runs}{evaluation_set}")
    labels = display_names((panel[0].name for panel in panels), read_labels(label))
    if sort or pe == ALL:
        panels, order = sort_panels(panels, seed), describe_order(panels, seed, labels)
    path = figure or figure_path(runs, panels, evaluation_set)
    drawn = compose(
        panels,
        seed,
        order=order,
        labels=labels,
        width=width,
        columns=columns,
        caption=not no_caption,
    )
    save(drawn, path)
    print(path)
