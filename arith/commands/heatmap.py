"""`tape-arith heatmap`: draw grids side by side."""

from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.grids.axes import Numbers

EXAMPLE = "tape-arith heatmap --pe rope,rand-rope,nope,fire,tape"

_Sort = Annotated[
    bool,
    typer.Option("--sort", help="Best out of distribution first, as always with `all`."),
]
_ByLength = Annotated[
    bool,
    typer.Option("--by-length", help="Lines over the length of the longer operand instead."),
]
_Numbers = Annotated[
    Numbers,
    typer.Option(help="Below names: none, the mean out of distribution, or all means and seeds."),
]
_NoDifference = Annotated[
    bool, typer.Option("--no-difference", help="Without the difference of two encodings.")
]
_NoLegend = Annotated[
    bool, typer.Option("--no-legend", help="Without a legend; the caption explains the frame.")
]
_Font = Annotated[
    str, typer.Option(metavar="NAME", help="A font, or serif (default: matplotlib's).")
]
_Vmax = Annotated[
    float,
    typer.Option(
        metavar="N",
        min=1,
        max=100,
        help="End of the scale of exact match, in percent; a difference keeps its own scale.",
    ),
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
    numbers: _Numbers = "all",
    no_difference: _NoDifference = False,
    no_legend: _NoLegend = False,
    no_caption: option.NoCaption = False,
    font: _Font = "",
    vmax: _Vmax = 100,
    by_length: _ByLength = False,
) -> None:
    """Draw exact match over lengths, one panel per encoding: the mean over seeds, or one --seed.

    A task of one length, such as copy, gives one line per encoding, with the interval over seeds.
    Without --figure, the file is written next to the runs. Fonts, colours, line widths, dpi and the
    colour map of your matplotlibrc hold; sizes of letters follow --width.

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
        by_length=by_length,
        width=width,
        columns=columns,
        numbers=numbers,
        difference=not no_difference,
        legend=not no_legend,
        caption=not no_caption,
        font=font,
        vmax=vmax,
    )
    save(drawn, figure or usual)
    print(figure or usual)
