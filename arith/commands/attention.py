"""`tape-arith attention`: where a model looks."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.job_options import whole_numbers
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith attention runs/mini/*/seed-0 --problem 123+45 --plot attention.png"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, as `tape-arith list` shows them."),
    ],
    problem: Annotated[
        str | None, typer.Option(help="Draw the maps of this problem too, as in 123+45.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Of the maps: numbers with commas, or all (default: last).")
    ] = None,
    heads: Annotated[str, typer.Option(help="Of the maps: numbers with commas, or all.")] = "all",
    problems: Annotated[
        int, typer.Option(min=1, help="So many in distribution, and so many out of it.")
    ] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON on stdout.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw FILE-distance, FILE-places, FILE-maps."),
    ] = None,
) -> None:
    """Show where attention goes: by distance, and to digits of the place that is computed."""
    wanted = {"--layers": layers, "--heads": heads}
    numbers = {
        option: None if text in (None, "all") else whole_numbers(option, str(text))
        for option, text in wanted.items()
    }
    if problem is not None and plot is None and not as_json:
        raise UsageError("the maps of --problem are drawn or written as JSON: add --plot or --json")
    from tape_arith.arith.figures.style import figure_format
    from tape_arith.arith.studies.attention_data import select_maps, to_json, to_markdown
    from tape_arith.arith.studies.attention_figure import draw

    if plot is not None:
        figure_format(plot)
    from tape_arith.arith.studies.attention import attention_study
    from tape_arith.arith.studies.inputs import comparable_runs
    from tape_arith.arith.terminal import say

    studied = comparable_runs(runs)
    config = studied[0].record.config
    shown = select_maps(
        *(config.num_layers, config.num_heads),
        *(numbers["--layers"], numbers["--heads"]),
        all_layers=layers == "all",
    )
    study = attention_study(studied, problems, problem)
    if plot is not None:
        for file in draw(study, plot, *shown):
            say(f"drawn: {file}")
    print(to_json(study, *shown) if as_json else to_markdown(study), end="")
