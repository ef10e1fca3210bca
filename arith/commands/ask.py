"""`tape-arith ask`: answer one problem with a trained run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.api.processes import configure
from tape_arith.arith.commands import completion, option

EXAMPLE = "tape-arith ask runs/mini/tape/seed-0 123+45"

_Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN|NAME",
        help="A run's folder, or an encoding among --runs.",
        autocompletion=completion.complete_encoding,
    ),
]
_Problem = Annotated[str, typer.Argument(help="A problem, as 123+45; `list TASK` has one.")]


def command(
    run: _Run,
    problem: _Problem,
    preset: option.Preset = None,
    seed: option.Seed = None,
    runs: option.Runs = Path("runs"),
    with_: option.With = None,
    threads: option.Threads = None,
    as_json: option.AsJson = False,
) -> None:
    """Answer a problem greedily: each token with its probability, and whether it is right."""
    from tape_arith.arith.api.run import find_run

    trained, added = find_run(run, runs=runs, preset=preset, seed=seed)
    configure(threads)
    result = trained.answer(problem, with_ or added)
    print(json.dumps(result.content()) if as_json else result)
