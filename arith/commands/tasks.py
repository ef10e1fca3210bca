"""`tape-arith tasks`: compare encodings across tasks."""

from functools import partial
from typing import Annotated

import typer

from tape_arith.arith.commands import option, table_output

EXAMPLE = "tape-arith tasks all --runs results --figure tasks.pdf"

_Names = Annotated[
    str,
    typer.Argument(
        metavar="NAMES", help="Tasks or presets with commas, each ranked by itself; or all."
    ),
]


def command(
    names: _Names = "all",
    pe: option.Encodings = option.ALL_ENCODINGS,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    runs: option.ComparedRuns = option.OWN_RUNS,
    format: table_output.Format = None,
    as_csv: option.AsCsv = False,
    as_json: option.AsJson = False,
    show: table_output.Show = "",
    out: table_output.Out = None,
    figure: option.Figure = None,
    label: option.Labels = None,
    width: option.Width = None,
    no_caption: option.NoCaption = False,
) -> None:
    """Compare encodings across tasks: means out of distribution, ranks in each task, mean rank."""
    from tape_arith.arith.api.comparisons import select
    from tape_arith.arith.compare.across_tasks import across_tasks
    from tape_arith.arith.compare.task_table import FORMATS
    from tape_arith.arith.compare.terminal import print_markdown
    from tape_arith.arith.figures.across_tasks import compose

    table = table_output.TableOutput(
        format, as_csv, as_json, show, out, figure, label, (width, no_caption)
    )
    content = across_tasks(select(runs, pe, None, split, max_digits), names, table.labels)
    text = FORMATS[table.kind or "markdown"](content, table.columns, **table.options)
    table.show(text, partial(compose, content), partial(print_markdown, text))
