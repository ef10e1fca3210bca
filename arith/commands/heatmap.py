"""`tape-arith heatmap`: draw grids side by side."""

from typing import Annotated

import typer

from tape_arith.arith.commands import option

EXAMPLE = "tape-arith heatmap --pe rope,rand-rope,nope,fire,tape"

_Sort = Annotated[
    bool,
    typer.Option("--sort", help="Best out of distribution first, as always with `all`."),
]
_ByLength = Annotated[
    bool,
    typer.Option("--by-length", help="Lines over the length of the longer operand instead."),
]


def command(
    pe: option.Encodings,
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    seed: option.Seed = None,
    sort: _Sort = False,
    runs: option.ComparedRuns = option.OWN_RUNS,
    figure: option.MadeFigure = None,
    label: option.Labels = None,
    width: option.Width = None,
    columns: option.Columns = None,
    no_caption: option.NoCaption = False,
    by_length: _ByLength = False,
) -> None:
    """Draw exact match over lengths, one panel per encoding: the mean over seeds, or one --seed.

    A task of one length, such as copy, gives one line per encoding, with the interval over seeds.
    Without --figure, the file is written next to the runs.

    `--pe all` draws every scored encoding: task-agnostic by mean out of distribution, then
    task-structured, then not converged.
    """
    from tape_arith.arith.api.comparisons import select
    from tape_arith.arith.compare.labels import read_labels
    from tape_arith.arith.figures.heatmap import draw
    from tape_arith.arith.figures.style import save

    drawn, usual = draw(
        select(runs, pe, preset, split, max_digits),
        seed=seed,
        sort=sort,
        labels=read_labels(label),
        width=width,
        columns=columns,
        caption=not no_caption,
        by_length=by_length,
    )
    save(drawn, figure or usual)
    print(figure or usual)
