"""`tape-arith leaderboard`: rank the scored encodings of a preset, or across tasks."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith leaderboard --preset mini --out leaderboard.tex --figure leaderboard.pdf"
_ENDINGS = {".md": "markdown", ".txt": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


def command(
    pe: option.Encodings = "all",
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    task: option.TaskName = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="A table of encodings by tasks, with mean ranks: all, or tasks or presets.",
        ),
    ] = None,
    runs: option.Runs = Path("runs"),
    format: Annotated[
        str | None,
        typer.Option(
            help="markdown, csv, latex or json (default: by --out's ending; else a table for the "
            "terminal, markdown elsewhere)."
        ),
    ] = None,
    as_csv: option.AsCsv = False,
    as_json: option.AsJson = False,
    show: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Columns of the table, such as encoding,seeds,out_of_distribution.",
        ),
    ] = "",
    wide: Annotated[bool, typer.Option("--wide", help="All columns, at full width.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    figure: option.Figure = None,
    label: option.Labels = None,
    width: option.Width = None,
    no_caption: option.NoCaption = False,
    costs: option.Costs = False,
) -> None:
    """Rank all scored encodings of a preset by their mean out of distribution.

    --task selects the runs of one task. --tasks prints a table of encodings by tasks: means out of
    distribution, ranks in each task and their mean; with --figure a heatmap of these. --pe selects
    rows; ranks and tests are those of all encodings. Runs of another budget or evaluation set are
    left out and named. The table goes to stdout, in a terminal with the columns that fit; with
    --out or --figure only the paths of the files are printed.
    """
    from tape_arith.arith.compare import task_table
    from tape_arith.arith.compare.across_tasks import across_tasks
    from tape_arith.arith.compare.labels import read_labels
    from tape_arith.arith.compare.leaderboard import build_board
    from tape_arith.arith.compare.selection import Selection
    from tape_arith.arith.compare.tables import FOR_PEOPLE, FORMATS
    from tape_arith.arith.compare.terminal import print_board, print_markdown
    from tape_arith.arith.figures import across_tasks as task_figures
    from tape_arith.arith.figures.leaderboard import compose
    from tape_arith.arith.figures.style import figure_format, save
    from tape_arith.arith.files import write_text
    from tape_arith.arith.grids.evaluation_set import EvaluationSet

    kind = option.chosen_format(format, FORMATS, as_csv=as_csv, as_json=as_json)
    if wide and (kind or out):
        raise UsageError("--wide is for the terminal: leave out --wide, or --out and the format")
    if out and not kind:
        kind = _ENDINGS.get(out.suffix.lower())
        if kind is None:
            endings = ", ".join(_ENDINGS)
            raise UsageError(
                f"{out} has none of the endings {endings}: give it one, or add --format"
            )
    names = [name.strip() for name in show.split(",") if name.strip()]
    if not figure and (width or no_caption):
        raise UsageError("--width and --no-caption change a figure: add --figure")
    if not (kind or figure or wide or sys.stdout.isatty()):
        kind = "markdown"
    if label and not (figure or kind in FOR_PEOPLE):
        raise UsageError(
            "--label changes a figure or a table for a paper: add --figure or --out table.tex"
        )
    own = read_labels(label)
    if figure:
        figure_format(figure)  # before anything is written
    selection = Selection(runs, pe, preset, task, EvaluationSet(split, max_digits))
    if tasks is not None:
        if preset or task or costs or wide:
            raise UsageError(
                "--tasks takes no --preset, --task, --costs or --wide: name tasks and presets "
                "there, as in --tasks copy,mini-sort"
            )
        table = across_tasks(selection, tasks, own)
        text = task_table.FORMATS[kind or "markdown"](table, names)
        drawn = partial(task_figures.compose, table)
        show_in_terminal = partial(print_markdown, text)
    else:
        content = build_board(selection, costs=costs)
        labelled = content.labelled(own)
        text = FORMATS[kind](labelled if kind in FOR_PEOPLE else content, names) if kind else ""
        drawn = partial(compose, labelled)
        show_in_terminal = partial(print_board, content, names, wide=wide)
    if out:
        write_text(out, text)
        print(out)
    if figure:
        save(drawn(width=width, caption=not no_caption), figure)
        print(figure)
    if kind and not out:
        print(text, end="")
    elif not (out or figure):
        show_in_terminal()
