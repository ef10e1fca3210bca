"""`tape-arith leaderboard`: rank the scored encodings of a preset."""

from functools import partial
from typing import Annotated

import typer

from tape_arith.arith.commands import option, table_output
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith leaderboard --preset mini --out leaderboard.tex --figure leaderboard.pdf"

_Wide = Annotated[bool, typer.Option("--wide", help="All columns, at full width.")]
_AmongShown = Annotated[
    bool, typer.Option("--among-shown", help="Rank and test only the encodings of --pe.")
]
_Against = Annotated[
    str, typer.Option(metavar="PE", help="The figure shows differences from this encoding.")
]
_Contrasts = Annotated[
    list[str] | None,
    typer.Option(metavar="A - B", help="Test A against B, corrected among these. Repeatable."),
]


def command(
    pe: option.Encodings = option.ALL_ENCODINGS,
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    task: option.TaskName = None,
    runs: option.ComparedRuns = option.OWN_RUNS,
    format: table_output.Format = None,
    as_csv: option.AsCsv = False,
    as_json: option.AsJson = False,
    show: table_output.Show = "",
    wide: _Wide = False,
    out: table_output.Out = None,
    figure: option.Figure = None,
    label: option.Labels = None,
    width: option.Width = None,
    no_caption: option.NoCaption = False,
    costs: option.Costs = False,
    among_shown: _AmongShown = False,
    against: _Against = "",
    contrast: _Contrasts = None,
) -> None:
    """Rank all scored encodings of a preset by their mean out of distribution.

    --task selects the runs of one task. --pe selects rows; ranks and tests are those of all
    encodings, unless --among-shown. Runs of another budget or evaluation set are left out and
    named. The table goes to stdout; a terminal shows the columns that fit. With --out or --figure,
    only the paths of the files are printed.
    """
    from tape_arith.arith.api.comparisons import select
    from tape_arith.arith.compare import tables
    from tape_arith.arith.compare.leaderboard import build_board
    from tape_arith.arith.compare.terminal import print_board
    from tape_arith.arith.figures import forest, leaderboard
    from tape_arith.arith.registry.names import parse, read_contrast

    table = table_output.TableOutput(
        format, as_csv, as_json, show, out, figure, label, (width, no_caption), wide
    )
    if against and not figure:
        raise UsageError("--against changes the figure: add --figure")
    selection = select(runs, pe, preset, split, max_digits, task)
    pairs = map(read_contrast, contrast or ())
    board = build_board(selection, costs=costs, pairs=pairs, among_shown=among_shown)
    labelled, kind = board.labelled(table.labels), table.kind
    shown = labelled if kind in tables.FOR_PEOPLE else board
    text = tables.FORMATS[kind](shown, table.columns, **table.options) if kind else ""
    draw = partial(leaderboard.compose, labelled)
    if against:
        draw = partial(forest.compose, labelled, str(parse(against)))
    table.show(text, draw, partial(print_board, board, table.columns, wide=wide))
