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
    """Draw exact match over lengths, a panel an encoding: the mean over seeds, or one --seed.

    A task of one length, as copy, gives a line an encoding, with the interval over seeds.

    Without --figure the file is beside the runs.

    `--pe all` draws every scored encoding: by mean out of distribution, then those that know
    where digits stand, then those that did not converge.
    """
    from tape_arith.arith.compare.labels import display_names, read_labels
    from tape_arith.arith.compare.leaderboard import describe_order, heatmap_panels
    from tape_arith.arith.compare.selection import Selection
    from tape_arith.arith.figures.heatmap import compose
    from tape_arith.arith.figures.style import save
    from tape_arith.arith.grids.evaluation_set import EvaluationSet

    selection = Selection(runs, pe, preset, evaluation_set=EvaluationSet(split, max_digits))
    panels, in_order = heatmap_panels(selection, seed=seed, sort=sort)
    labels = display_names((panel.name for panel in panels), read_labels(label))
    path = figure or selection.figure_path(panels)
    drawn = compose(
        panels,
        order=describe_order(panels, labels) if in_order else "",
        labels=labels,
        width=width,
        columns=columns,
        caption=not no_caption,
    )
    save(drawn, path)
    print(path)
