"""`tape-arith train`: train one run and score it."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.commands.job_options import (
    leave,
    set_up,
    stopping_by,
    train_options,
)
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import is_encoding
from tape_arith.arith.registry.names import parse, parse_list
from tape_arith.arith.runs.config import Policy
from tape_arith.arith.runs.preset import parse_settings

EXAMPLE = "tape-arith train --pe tape --preset mini --seed 1"


def command(
    run: Annotated[
        Path | None, typer.Argument(help="The folder of a run to continue, instead of --pe.")
    ] = None,
    pe: Annotated[
        str | None,
        typer.Option(
            help="The positional encoding: name[:option=value...][+name].",
            autocompletion=option.complete_encoding,
        ),
    ] = None,
    preset: option.Preset = None,
    seed: option.Seed = None,
    settings: option.Settings = None,
    task: option.TaskName = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With RUN: extend its budget to this number of steps.")
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Start from the final weights of a run, by default with its preset, settings and "
            "seed.",
        ),
    ] = None,
    only_positional: Annotated[
        bool,
        typer.Option("--only-positional", help="With --init-from: train only the encoding."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A dataset (default: that of `generate` in data, if it fits; else problems are "
            "generated as needed)."
        ),
    ] = None,
    runs: option.MadeRuns = Path("runs"),
    no_score: Annotated[bool, typer.Option("--no-score", help="Score no grid.")] = False,
    time_limit: option.TimeLimit = None,
    threads: option.Threads = None,
    backend: option.Backend = "auto",
    compiled: option.Compiled = None,
    no_curves: option.NoCurves = False,
    track: option.Track = None,
    on_nonfinite: Annotated[
        Policy | None,
        typer.Option(
            help="What to do if the loss or gradient of a step is not finite: stop, or skip its "
            "update and count it (default: as in the run's record, stop for a new run).",
        ),
    ] = None,
    fresh: option.Fresh = False,
) -> None:
    """Train one encoding, or continue a run, then score its grid."""
    makes_new = fresh or runs != Path("runs") or init_from is not None or seed is not None
    makes_new = makes_new or any((preset, settings, task))
    _check(run, pe, steps, makes_new=makes_new)
    if only_positional and init_from is None:
        raise UsageError("--only-positional needs --init-from RUN, whose weights stay as they are")
    options = train_options(backend, compiled, no_curves, track, data, on_nonfinite)
    stopper = set_up(time_limit, threads)
    from tape_arith.arith.api.run import Run
    from tape_arith.arith.api.runs import train

    with stopping_by(stopper):
        if run is not None:
            trained = Run(run).train(steps, options=options, stopper=stopper)
        else:
            trained = train(
                str(pe),
                preset=preset,
                task=task,
                seed=seed,
                runs=runs,
                init_from=init_from,
                only_positional=only_positional,
                options=options,
                fresh=fresh,
                stopper=stopper,
                settings=parse_settings(settings),
            )
        complete = trained.state().trained
        if complete and not no_score:
            added = parse(pe).extrapolation if pe else None
            compute = options.compute.for_scoring
            grid = trained.score(str(added) if added else None, compute=compute, stopper=stopper)
            complete = grid.complete
            print(grid.summary())
    print(trained.path)
    if not complete:
        leave(stopper)


def _check(run: Path | None, pe: str | None, steps: int | None, *, makes_new: bool) -> None:
    """Raise UsageError unless options name one run, to continue or to train.

    makes_new  whether any option is about a new run
    """
    if run is not None and pe is not None:
        raise UsageError("RUN continues with its own encoding: leave out --pe or RUN")
    if run is None and pe is None:
        raise UsageError("name an encoding (--pe tape) or the folder of a run to continue")
    if run is not None and not run.exists() and is_encoding(str(run)):
        raise UsageError(f"RUN is the folder of a run: write --pe {run} to train an encoding")
    if run is not None and makes_new:
        raise UsageError(
            "RUN continues with the settings in its run.json: leave out --preset, --set, --task, "
            "--seed, --runs and --init-from; to start over, give these and --pe with --fresh, "
            "without RUN"
        )
    if steps is not None and run is None:
        raise UsageError("--steps extends an existing run; for a new one use --set steps=N")
    names = parse_list(pe) if pe is not None else []
    if run is None and not names:
        raise UsageError("--pe is empty: name an encoding, as in --pe tape")
    if len(names) > 1:
        raise UsageError(f"train takes one encoding: `tape-arith run --pe {pe}` takes several")
