"""`tape-arith study`: measure attention, errors or stability of trained runs."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.terminal import say

EXAMPLE = "tape-arith study errors runs/mini/rope/seed-0 runs/mini/fire/seed-0 --figure errors.png"
_FORMATS = ("markdown", "csv", "json")
_PROBLEMS = {"attention": 200, "errors": None, "stability": 200}
"""Default number of measured problems by study; None: all."""


def command(
    kind: Annotated[
        str,
        typer.Argument(help=f"{', '.join(_PROBLEMS)}.", autocompletion=lambda: list(_PROBLEMS)),
    ],
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, as `tape-arith list` shows them."),
    ],
    problem: Annotated[
        str | None, typer.Option(help="attention: also the maps of a problem, such as 123+45.")
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(min=1, help="attention: the layer of the maps (default: the last)."),
    ] = None,
    double: Annotated[
        bool, typer.Option("--double", help="stability: in float64 too, with little rounding.")
    ] = False,
    problems: option.Problems = None,
    split: option.Split = "evaluation",
    threads: option.Threads = None,
    format: Annotated[
        str | None, typer.Option(help="markdown, csv or json, on stdout (default: markdown).")
    ] = None,
    as_csv: option.AsCsv = False,
    as_json: option.AsJson = False,
    figure: option.Figure = None,
) -> None:
    """Measure attention, errors or stability of trained runs.

    attention: attention by distance, and to digits of the computed place. Half of the problems are
    in distribution; --figure x.png draws x-distance.png, x-places.png and, with --problem,
    x-maps.png.

    errors: wrong answers by carry chain, place and kind of the first error.

    stability: change of attention when indices are shifted or [BOS] precedes the problem.
    """
    from tape_arith.arith.compare.terminal import print_markdown
    from tape_arith.arith.figures.style import figure_format, save

    if kind not in _PROBLEMS:
        raise unknown("study", kind, _PROBLEMS)
    if kind != "attention" and (problem, layer) != (None, None):
        raise UsageError(f"--problem and --layer go with `study attention`, not `study {kind}`")
    if kind != "stability" and double:
        raise UsageError(f"--double goes with `study stability`, not `study {kind}`")
    form = option.chosen_format(format, _FORMATS, as_csv=as_csv, as_json=as_json)
    if figure is not None:
        figure_format(figure)
    options: dict[str, dict[str, Any]] = {
        "attention": {"written": problem, "layer": layer},
        "errors": {},
        "stability": {"double": double},
    }
    use_threads(threads)
    from tape_arith.arith.studies.inputs import comparable_runs

    module = import_module(f"tape_arith.arith.studies.{kind}")
    studied = comparable_runs(runs, split)
    usual = min(_PROBLEMS[kind] or studied.num_problems, studied.num_problems)
    study = module.measure(studied, problems or usual, **options[kind])
    if figure is not None:
        for name, drawn in module.figures(study).items():
            file = figure.with_name(f"{figure.stem}{name}{figure.suffix}")
            save(drawn, file)
            say(f"drawn: {file}")
    if form is None:
        print_markdown(module.to_markdown(study))
    else:
        texts = {
            "markdown": module.to_markdown,
            "csv": type(study).to_csv,
            "json": type(study).to_json,
        }
        print(texts[form](study), end="")
