"""`tape-arith ask`: answer one problem with a trained run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import use_threads
from tape_arith.arith.errors import UsageError

if TYPE_CHECKING:
    from tape_arith.arith.registry.names import NamePart
    from tape_arith.arith.runs.run import Run

EXAMPLE = "tape-arith ask runs/mini/tape/seed-0 123+45"


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|NAME",
            help="A run's folder, or an encoding among --runs.",
            autocompletion=option.complete_encoding,
        ),
    ],
    problem: Annotated[str, typer.Argument(help="A problem, as 123+45; `list TASK` has one.")],
    preset: option.Preset = None,
    seed: option.Seed = None,
    runs: option.Runs = Path("runs"),
    with_: option.With = None,
    threads: option.Threads = None,
    as_json: option.AsJson = False,
) -> None:
    """Answer a problem greedily: each token with its probability, and whether it is right."""
    from tape_arith.arith.registry.names import parse_extrapolation

    trained, extrapolation = _find(run, runs, preset, seed)
    extrapolation = parse_extrapolation(with_) if with_ else extrapolation
    use_threads(threads)
    from tape_arith.arith.scoring.answer import answer

    result = answer(trained, problem, extrapolation)
    print(json.dumps(result.content()) if as_json else result)


def _find(
    target: str, root: Path, preset: str | None, seed: int | None
) -> "tuple[Run, NamePart | None]":
    """Return the run in folder `target`, or of the encoding `target` with its extrapolation.

    Raises UsageError unless exactly one run below `root` matches.
    """
    from tape_arith.arith.files import slug
    from tape_arith.arith.registry.names import parse
    from tape_arith.arith.runs.command_lines import train_command
    from tape_arith.arith.runs.find import existing_run
    from tape_arith.arith.runs.run import Run

    if Path(target).is_dir() or ("/" in target and ".py:" not in target):
        if preset is not None or seed is not None:
            raise UsageError(
                f"{target} is a folder: --preset and --seed go with an encoding's name"
            )
        return existing_run(Path(target)), None
    name = parse(target)
    pattern = f"{slug(preset) if preset else '*'}/{slug(str(name.encoding))}/seed-{seed or 0}"
    found = [Run(file.parent) for file in sorted(root.glob(f"{pattern}/run.json"))]
    if not found:
        raise UsageError(
            f"no run of {name.encoding}, seed {seed or 0}, in {root}: "
            f"`{train_command(name, preset, root, seed or 0)}` trains one"
        )
    if len(found) > 1:
        paths = ", ".join(str(run.path) for run in found)
        raise UsageError(f"{name} is in {paths}: choose one with --preset")
    return found[0], name.extrapolation
